"""A line of the package that is broken on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mutant:
    """``old`` stands once in the file ``path`` of the package, and ``new`` takes its place.

    ``equivalent`` says why no request can tell the mutant from the original, where that is so.
    """

    name: str
    path: str
    old: str
    new: str
    equivalent: str = ""

    def applied_to(self, text: str) -> str:
        """The broken text of the file.

        Raises:
            ValueError: ``old`` does not stand there once, so that the mutant breaks nothing, or anything.
        """
        count = text.count(self.old)
        if count != 1:
            raise ValueError(
                f"mutant {self.name!r}: its old text stands {count} times in {self.path}, and must stand "
                "once; follow the change of that file"
            )
        return text.replace(self.old, self.new)

    def original(self, package: Path) -> str:
        """The text of the file that it breaks."""
        return (package / self.path).read_text(encoding="utf-8")
