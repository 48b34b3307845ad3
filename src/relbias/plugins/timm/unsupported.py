"""Why the other families of timm's models are not supported."""

from __future__ import annotations

from torch import nn

NO_ATTENTION = "it has no attention over tokens"

REASONS: dict[str, str] = {
    # The logits are no sum to which a relation could be added.
    "cait": "its heads talk to each other before and after the softmax",
    "efficientformer_v2": "its heads talk to each other before and after the softmax",
    "convit": "it blends the softmax of its positions with that of its contents",
    "volo": "its first layers attend by outlooks, whose weights come from the query alone",
    "efficientvit_msra": "its heads attend one after another, each to what the one before has made",
    # There are no logits between tokens.
    "xcit": "it attends between channels, not between tokens",
    "davit": "half of its layers attend between channels, not between tokens",
    "edgenext": "it attends between channels, not between tokens",
    "coat": "its attention is factorised: keys meet the values before the queries",
    "efficientvit_mit": "its attention is linear: keys meet the values before the queries",
    "swiftformer": "its attention is additive: the queries are summed before they meet the keys",
    "efficientvim": "it mixes tokens by a state space, not by attention",
    # Queries and keys are not the same tokens.
    "mvitv2": "its keys are pooled, and it has relative positions of its own",
    "pvt_v2": "its keys are of a coarser map than its queries",
    "twins": "its global attention has keys of a coarser map than its queries",
    "nextvit": "its keys are pooled",
    "levit": "it has relative positions of its own, and layers with fewer queries than keys",
    "gcvit": "half of its layers take their queries from the whole image and their keys from a window",
    "hiera": "its queries are pooled where a stage begins",
    "hieradet_sam2": "its queries are pooled where a stage begins",
    # Attention between tokens of one grid or window, for which nobody has written a file here.
    "tiny_vit": "its windows have relative positions of their own, which are not known here",
    "efficientformer": "its last layers have relative positions of their own, which are not known here",
    "fastvit.Attention": "its last layers attend by a class of their own, which is not known here",
    "metaformer.Attention": "it attends by a class of its own, which is not known here",
    "visformer": "it attends by a class of its own, which is not known here",
    "nest": "it attends within blocks of the image by a class of its own, which is not known here",
    "tnt": "it attends within patches and between them by a class of its own, which is not known here",
    "shvit": "it attends by a class of its own, over some of the channels, which is not known here",
    "iformer": "it attends by a class of its own, which is not known here",
    "lowformer": "it attends over a map that its own layers make coarser and finer again, which is not known here",
    "cpubone": "it attends over a map that its own layers make coarser and finer again, which is not known here",
    # Layers of models that are convolutional otherwise.
    "bottleneck_attn": "its attention has relative positions of its own, for maps of one size",
    "halo_attn": "its attention has blocks of queries within larger blocks of keys, and relative positions of its own",
    "lambda_layer": "its layers make a linear function of each neighbourhood, not attention between tokens",
    "non_local_attn": "its attention is a bilinear pooling of rows and columns",
    "attention2d": "its attention has one head of keys and values, in some layers of a coarser map",
    "attention_pool2d": "it attends once, to pool the last map",
}
"""By the file in timm's models or layers, or a class in it where not all that the file has attend."""


def reason(model: nn.Module) -> str:
    """Why a model is not supported, as the rest of a sentence.

    Args:
        model: of timm or not.
    """
    # The model itself comes before its layers, of which some are borrowed from another family.
    known = False
    for cls in map(type, model.modules()):
        package, _, file = cls.__module__.rpartition(".")
        if package in ("timm.models", "timm.layers"):
            known = True
            for name in (f"{file}.{cls.__name__}", file):
                if name in REASONS:
                    return REASONS[name]
    return NO_ATTENTION if known else "it is not of timm"
