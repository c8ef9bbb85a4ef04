"""PDFs written by hand: pages of lines, as small as the format allows."""

import zlib
from collections.abc import Sequence


def paper(pages: Sequence[str], title: str = "", *, packed: bool = False) -> bytes:
    """A PDF with these pages; a page without text is a picture of nothing. `packed`: its streams are compressed."""
    return assembled([(_drawn(page), packed) for page in pages], title)


def assembled(streams: Sequence[tuple[bytes, bool]], title: str = "") -> bytes:
    """A PDF whose pages are drawn by these streams; those marked are compressed (again, if they were)."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(streams)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(streams)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, (stream, packed) in enumerate(streams):
        content = zlib.compress(stream, 9) if packed else stream
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
            f" /Contents {5 + 2 * n} 0 R >>".encode(),
            f"<< /Length {len(content)} {'/Filter /FlateDecode' if packed else ''} >>\nstream\n".encode()
            + content
            + b"\nendstream",
        ]
    objects.append(f"<< /Title ({title}) >>".encode())
    return written(*objects, info=len(objects))


def written(*objects: bytes, info: int = 1, prev: bool = False) -> bytes:
    """A PDF of these objects, the first of which is its catalog. `prev`: its xref names itself as the one before."""
    out, places = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    xref = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{place:010} 00000 n \n".encode() for place in places)
    before = f"/Prev {xref} " if prev else ""
    out += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info {info} 0 R {before}>>\n".encode()
    return bytes(out + f"startxref\n{xref}\n%%EOF\n".encode())


def _drawn(page: str) -> bytes:
    lines = (line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") for line in page.split("\n"))
    shown = "\n".join(f"({line}) Tj 0 -14 Td" for line in lines)
    return f"BT /F1 12 Tf 72 720 Td {shown} ET".encode() if page else b""
