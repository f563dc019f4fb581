"""Fetch the photographs: every package of packages.tsv, every file of photos.tsv.

The lists are the contract: a package or a photograph whose SHA-256 is not the listed one stops the
fetch, so that what is trained on is what was looked at, and its licence is the listed one.
"""

import argparse
import csv
import hashlib
import os
import subprocess
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent


def rows(name):
    """The rows of a committed list, as dictionaries."""
    with open(HERE / name, encoding="utf8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def data_folder():
    """The project's shared data, which also holds the sets that are only evaluated on."""
    folder = os.environ.get("HALOSCOPE_DATA")
    if not folder:
        raise SystemExit("HALOSCOPE_DATA is not set; it names the folder with images/free_photos")
    return Path(folder)


def path_of(row, folder):
    """Where a photograph of photos.tsv is once it is fetched."""
    if row["package"] == "free_photos":
        return data_folder() / "images" / "free_photos" / row["path"]
    return Path(folder) / "packages" / row["package"] / row["path"]


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def fetch(folder):
    """Download and unpack what is missing, then check every photograph."""
    for row in rows("packages.tsv"):
        unpacked = Path(folder) / "packages" / row["package"]
        if unpacked.exists():
            continue
        archive = Path(folder) / "archives" / row["url"].rsplit("/", 1)[1]
        archive.parent.mkdir(parents=True, exist_ok=True)
        if not archive.exists():
            print("fetching", row["url"], flush=True)
            urllib.request.urlretrieve(row["url"], archive)
        if digest(archive) != row["sha256"]:
            raise SystemExit(f"{archive} is not the listed package; remove it and fetch again")
        # Unpacked beside, then renamed: an interrupted fetch leaves no half package.
        partial = unpacked.with_suffix(".partial")
        subprocess.run(["dpkg-deb", "-x", archive, partial], check=True)
        partial.rename(unpacked)
    photos = rows("photos.tsv")
    for row in photos:
        path = path_of(row, folder)
        if digest(path) != row["sha256"]:
            raise SystemExit(f"{path} is not the listed photograph")
    print(len(photos), "photographs, all as listed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, help="where packages are kept; not in git")
    fetch(parser.parse_args().folder)
