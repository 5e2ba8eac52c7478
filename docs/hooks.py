"""What `make docs` adds to the pages: the changelog, a menu of the decision notes, and all that the search needs."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parent.parent
FETCHED = "https://unpkg.com/iframe-worker/shim"  # By the theme, for its search in pages that are opened from the disk.


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


def on_post_page(output: str, page: Page, config: Any) -> str:
    """Pages with the site's own copy of the script that the theme would fetch from elsewhere."""
    assert FETCHED in output
    return output.replace(FETCHED, get_relative_url("javascripts/iframe-worker-shim.js", page.url))
