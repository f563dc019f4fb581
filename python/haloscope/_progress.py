"""Progress bars of tqdm, where it is installed."""

from __future__ import annotations

import sys
from typing import Any, Literal


class Progress:
    """A bar over the iterations of a run, or nothing."""

    def __init__(self, wanted: bool | Literal["auto"], iterations: int, title: str, is_root: bool) -> None:
        self._bar: Any = None
        if not wanted or not is_root:
            return
        # Without being asked, only where somebody looks: a terminal or a notebook.
        if wanted == "auto" and not (sys.stderr.isatty() or "ipykernel" in sys.modules):
            return
        try:
            from tqdm.auto import tqdm
        except ImportError:
            if wanted is True:
                raise
            return
        self._bar = tqdm(total=iterations, desc=title)

    @property
    def is_shown(self) -> bool:
        """Whether there is a bar."""
        return self._bar is not None

    def update(self, iteration: int, psnr: float | None, data_term: float | None) -> None:
        """Shows an iteration."""
        if self._bar is None:
            return
        self._bar.update(iteration - self._bar.n)
        if psnr is not None:
            self._bar.set_postfix_str(f"{psnr:.2f} dB")
        elif data_term is not None:
            self._bar.set_postfix_str(f"data term {data_term:.4g}")

    def close(self) -> None:
        """Leaves the bar as it is."""
        if self._bar is not None:
            self._bar.close()
