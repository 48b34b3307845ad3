"""Music in voices from MIDI files, put on a grid of steps."""

from __future__ import annotations

from pathlib import Path

from relbias._extras import extra

with extra("audio"):
    import mido

_MOST_STEPS = 100_000


def read_midi(path: str | Path, voices: int = 4, steps_per_quarter: int = 4) -> list[list[int]]:
    """The steps of a MIDI file whose tracks are voices.

    The tracks that have notes are the voices, in their order. A note's beginning and end are moved to the nearest step;
    a step has the note that sounds when it begins, of several in a track the one that began last. What all voices share
    at the end without a note is left out. A note that is shorter than half a step may have no step.

    Args:
        path: of the file.
        voices: V, how many tracks with notes there must be.
        steps_per_quarter: 4 for sixteenths.

    Returns:
        The steps, each a list of V MIDI pitches, -1 where a voice is silent: a piece of the JSON file that
        :class:`~relbias.data.Chorales` reads.

    Raises:
        ValueError: the file cannot be read, has another number of voices or no notes, or is longer than 100,000 steps.

    Example:
        >>> read_midi("chorale.mid")
        Traceback (most recent call last):
        ...
        ValueError: there is no file chorale.mid; give a MIDI file
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}; give a MIDI file")
    try:
        file = mido.MidiFile(path)
    except Exception as error:  # mido's own is no ValueError, and damaged bytes raise all kinds
        raise ValueError(f"{path} is not a MIDI file that can be read: {type(error).__name__}: {error}") from error
    if not 0 < file.ticks_per_beat < 2**15:  # SMPTE, whose ticks are parts of a second
        raise ValueError(f"{path} counts time in seconds, and there are no quarters to put on a grid")
    tracks = [track for track in map(_notes, file.tracks) if track]
    if len(tracks) != voices:
        raise ValueError(f"{path} has {len(tracks)} tracks with notes, expected {voices}, one for each voice")
    steps_per_tick = steps_per_quarter / file.ticks_per_beat
    grid: list[list[int]] = []
    for voice, notes in enumerate(tracks):
        for begin, end, pitch in notes:
            first, last = round(begin * steps_per_tick), round(end * steps_per_tick)
            if last > _MOST_STEPS:
                raise ValueError(f"{path} has a note at step {last}; at most {_MOST_STEPS} steps are read")
            grid.extend([-1] * voices for _ in range(last - len(grid)))
            for step in range(first, last):
                grid[step][voice] = pitch
    if not grid:
        raise ValueError(f"{path} has no note that is as long as a step")
    return grid


def _notes(track: mido.MidiTrack) -> list[tuple[int, int, int]]:
    """Beginning, end and pitch of the notes of a track, in ticks, in the order of their beginnings."""
    now, sounding, found = 0, {}, []
    for message in track:
        now += message.time
        if message.type not in ("note_on", "note_off"):
            continue
        key = (message.channel, message.note)
        if key in sounding:  # a note that is struck again ends the one before
            found.append((sounding.pop(key), now, message.note))
        if message.type == "note_on" and message.velocity > 0:
            sounding[key] = now
    found += [(begin, now, pitch) for (_, pitch), begin in sounding.items()]  # never ended
    return sorted(found)
