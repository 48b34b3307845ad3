"""MIDI files on a grid of steps."""

from __future__ import annotations

import json

import mido
import pytest

from relbias.data import Chorales
from relbias.data.midi import read_midi


def write(path, tracks, ticks=480):
    """A file of tracks, each of notes (beginning, end, pitch) in quarters."""
    file = mido.MidiFile(ticks_per_beat=ticks)
    for notes in tracks:
        events = [(round(end * ticks), 0, pitch) for _, end, pitch in notes]
        events += [(round(begin * ticks), 1, pitch) for begin, _, pitch in notes]
        track, now = mido.MidiTrack([mido.MetaMessage("set_tempo", tempo=400_000)]), 0
        for time, on, pitch in sorted(events):
            track.append(mido.Message("note_on", note=pitch, velocity=64 * on, time=time - now))
            now = time
        file.tracks.append(track)
    file.save(path)
    return path


def test_notes_and_rests_are_put_on_the_grid(tmp_path):
    upper = [(0, 0.5, 60), (0.5, 1, 60), (1.25, 1.5, 62)]  # struck again, then a rest
    lower = [(0, 1.02, 48), (0.98, 1.75, 50)]  # neither begins nor ends on the grid
    path = write(tmp_path / "a.mid", [[], upper, lower])
    expected = [[60, 48]] * 4 + [[-1, 50], [62, 50], [-1, 50]]
    assert read_midi(path, voices=2) == expected
    assert read_midi(write(tmp_path / "b.mid", [upper, lower], ticks=96), voices=2) == expected
    assert read_midi(path, voices=2, steps_per_quarter=1) == [[60, 48], [62, 50]]


def test_the_later_of_two_notes_in_a_track_sounds(tmp_path):
    path = write(tmp_path / "a.mid", [[(0, 1, 60), (0.5, 0.75, 64)]])
    assert read_midi(path, voices=1) == [[60], [60], [64], [60]]


def test_a_note_without_an_end_lasts_to_the_end_of_its_track(tmp_path):
    file = mido.MidiFile(ticks_per_beat=4)
    messages = [mido.Message("note_on", note=70, velocity=1), mido.MetaMessage("end_of_track", time=3)]
    file.tracks.append(mido.MidiTrack(messages))
    file.save(tmp_path / "a.mid")
    assert read_midi(tmp_path / "a.mid", voices=1) == [[70]] * 3


def test_pieces_go_into_the_file_of_chorales(tmp_path):
    pieces = [read_midi(write(tmp_path / "a.mid", [[(0, 4, 60)], [(0, 4, 50)]]), voices=2)]
    (tmp_path / "music.json").write_text(json.dumps({"train": pieces, "valid": pieces, "test": pieces}))
    data = Chorales(str(tmp_path / "music.json"), length=16, voices=2, steps_per_bar=4)
    data.setup()
    assert data.train[0].tolist() == [[60, 50]] * 16


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        (b"", "a.mid is not a MIDI file that can be read"),
        (b"RIFF and so on, which is no music", "a.mid is not a MIDI file that can be read"),
        (b"MThd\0\0\0\6\0\1\0\1\1\xe0MTrk\0\0\0\x09\0\x90", "a.mid is not a MIDI file that can be read"),
        (b"MThd\0\0\0\4\0\1\0\1", "a.mid is not a MIDI file that can be read"),
        (
            b"MThd\0\0\0\6\0\1\0\1\1\xe0MTrk\0\0\0\x06\0\xff\x59\2\x20\0",
            "a.mid is not a MIDI file that can be read: KeySignatureError",
        ),
        ([[(0, 1, 60)]], "a.mid has 1 tracks with notes, expected 2"),
        ([[(0, 0.01, 60)], [(0, 0.01, 50)]], "a.mid has no note that is as long as a step"),
        ([[(0, 1, 60)], [(0, 30_000, 50)]], "a.mid has a note at step 120000; at most 100000"),
    ],
)
def test_files_that_are_refused(tmp_path, content, message):
    path = tmp_path / "a.mid"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        write(path, content)
    with pytest.raises(ValueError, match=message):
        read_midi(path, voices=2)
