"""The libraries that the console brings along are the published ones, with their licences."""

import hashlib

from contract.pages import table
from contract.product import ROOT

VENDOR = ROOT / "services/router/counterpoint/router/console/static/vendor"


def test_each_library_is_the_published_file_and_has_its_licence() -> None:
    rows = table("\n" + (VENDOR / "README.md").read_text(), "# Libraries of the console")
    assert rows
    named = {}
    for file, _, version, licence, _, digest in rows:
        content = (VENDOR / file).read_bytes()
        named[file] = hashlib.sha256(content).hexdigest()
        assert named[file] == digest, file
        assert "Permission is hereby granted, free of charge" in (VENDOR / licence.rpartition(" ")[2]).read_text()
        assert file.endswith(".css") or version.encode() in content
    code = {path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".mjs", ".css")}
    assert code == set(named)
