"""Remove what an interrupted pip has left, so that the next `pip install` completes it.

pip considers a distribution as installed as soon as its metadata exist, and writes INSTALLER after all files.
Metadata without INSTALLER therefore belong to an interrupted installation. While pip replaces a distribution,
it renames the old folders to names that start with `~`.
"""

import shutil
import sysconfig
from pathlib import Path


def leftovers(folder: Path) -> list[Path]:
    """The metadata of incomplete distributions in a site-packages folder, and pip's renamed folders."""
    incomplete = [path for path in folder.glob("*.dist-info") if not (path / "INSTALLER").is_file()]
    return sorted([*incomplete, *folder.glob("~*")])


def main() -> None:
    """Remove the leftovers in this interpreter's site-packages folders."""
    for folder in {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}:
        for path in leftovers(folder):
            print(f"removed {path}: left by an interrupted installation")
            shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main()
