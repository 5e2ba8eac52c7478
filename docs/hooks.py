"""What `make docs` adds to the pages: the changelog, and a menu of the decision notes."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent


def on_config(config: Any) -> Any:
    """Append the decision notes to the menu, each under the title it has."""
    notes = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    config.nav.append({"Decisions": ["decisions/README.md", *(f"decisions/{note.name}" for note in notes)]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """CHANGELOG.md as a page."""
    text = (ROOT / "CHANGELOG.md").read_text().replace("](docs/", "](")
    files.append(File.generated(config, "changelog.md", content=text))
    return files
