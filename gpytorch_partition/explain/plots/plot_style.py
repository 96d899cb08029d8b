"""Colors, axes, titles and legends of all plots."""

from __future__ import annotations

from typing import Any

# Okabe & Ito's palette, distinguishable with any color vision.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F4F24")
GRAY = "#6E6E6E"
NOTE = {"va": "bottom", "ha": "right", "fontsize": 9, "color": GRAY}


def axes(ax: Any, width: float = 5.6, height: float = 4.4) -> Any:
    """
    Return the given axes, or new ones in a figure of pyplot, with sizes in inches.

    :raises ImportError: Without matplotlib.
    """
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('pictures need matplotlib: pip install "gpytorch_partition[plot]"') from error
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def name(text: Any) -> str:
    """Return a name with escaped dollars, which would begin a formula."""
    return str(text).replace("$", r"\$")


def percent(share: float) -> str:
    """Return a share as text in whole percent."""
    return f"{100 * share:.0f} %"


def set_title(ax: Any, text: str, above: int = 1) -> None:
    """Set a title on the left, with room for `above` lines below it."""
    ax.set_title(text, loc="left", fontsize=11, fontweight="bold", pad=6 + 16 * above)


def legend_above(ax: Any, num_columns: int = 2, handles: Any = None) -> None:
    """Add a legend in one line above the axes; a power of ten of the numbers is on the right."""
    ax.yaxis.set_offset_position("right")
    place = {"loc": "lower left", "bbox_to_anchor": (-0.015, 0.985)}
    options = {"fontsize": 9, "frameon": False, "handletextpad": 0.4, "columnspacing": 1.2}
    ax.legend(handles=handles, ncols=num_columns, **options, **place)
