"""Writes corpus/, from which the targets start: the files of ../tests/corpus, each for its readers."""

import zipfile
from pathlib import Path

FOLDER = Path(__file__).parent
# Longer seeds are slow to change and teach nothing that short ones do not.
MOST_BYTES = 4096


def seeds(path):
    """The targets that a file is for, and what each starts from."""
    if path.suffix == ".safetensors":
        yield "safetensors", path.read_bytes()
        return
    yield "pytorch", path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith("data.pkl"):
                    yield "pickle", archive.read(name)


for path in sorted((FOLDER.parent / "tests" / "corpus").iterdir()):
    for target, content in seeds(path):
        if len(content) <= MOST_BYTES:
            folder = FOLDER / "corpus" / target
            folder.mkdir(parents=True, exist_ok=True)
            (folder / path.stem).write_bytes(content)
