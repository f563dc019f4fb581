"""Write data.md, the list of photographs with their licences, from photos.tsv."""

from collections import Counter

import photos
from patches import HELD_OUT

HEAD = """# What the denoisers are trained on

{count} photographs, all under licences that Debian or Ubuntu distribute as free. `photos.tsv` is the
list that the programs read, with hashes; this page is written from it by `data.py`.

| licence | photographs |
|---|---|
{table}

- `free_photos` is `images/free_photos` of `HALOSCOPE_DATA`: Debian's lomiri-wallpapers,
  mate-backgrounds, plasma-workspace-wallpapers and lxqt-themes. The other packages are those of
  Ubuntu 24.04, by exact version and hash in `packages.tsv`. Licences and authors are those of each
  package's own copyright file. Where that file names many authors for many files, or only a
  package's contributors, the author is taken from the file's name.
- Every picture was looked at. Left out are renderings, drawings, generated pictures, pictures with
  a logo over them, flat graphics, and one photograph of film grain (its noise is not removable).
- Left out for their licence: pictures under the Unsplash licence, which is not a free one, and
  pictures whose names or authors say that they come from Unsplash or Pexels after those sites left
  CC0, whatever the package says of them.
- About one photograph in {held_out}, chosen by its hash, is held out for validation.
- Never trained on: BSDS500, Kodak24, Set12. `overlap.txt` is the check that no photograph, nor a
  part of one, is among them.

| photograph | package | licence | author |
|---|---|---|---|
"""


def main():
    rows = photos.rows("photos.tsv")
    table = "\n".join(
        f"| {name} | {count} |" for name, count in Counter(r["licence"] for r in rows).most_common()
    )
    text = HEAD.format(count=len(rows), table=table, held_out=HELD_OUT)
    for row in rows:
        cells = [row["path"].rsplit("/", 1)[-1], row["package"], row["licence"], row["author"]]
        text += "| " + " | ".join(cell.strip().replace("|", "/") for cell in cells) + " |\n"
    (photos.HERE / "data.md").write_text(text, encoding="utf8")


if __name__ == "__main__":
    main()
