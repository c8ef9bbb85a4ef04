"""HTML to markdown: what is to be read of a page, without what runs, decorates or leads elsewhere."""

from dataclasses import dataclass

HTML_LIMIT_CHARS = 2 * 1024 * 1024

_LEFT_OUT = (
    "script", "style", "nav", "noscript", "template", "svg", "iframe", "object", "form", "aside", "footer",
    "[role=navigation]", "[hidden]",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Page:
    """A page as markdown, and its title."""

    text: str
    title: str | None


def html(source: str) -> Page:
    """The page as markdown. Raises `ValueError` with the reason for what is too long or nested too deeply."""
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    if len(source) > HTML_LIMIT_CHARS:
        raise ValueError(f"is HTML of more than {HTML_LIMIT_CHARS} characters")
    try:
        soup = BeautifulSoup(source, "html.parser")
        title = " ".join(soup.title.get_text().split()) if soup.title else ""
        for tag in soup.select(", ".join((*_LEFT_OUT, "head"))):
            tag.decompose()
        for image in soup.find_all("img"):
            image.replace_with(str(image.get("alt") or ""))
        for link in soup.find_all("a"):
            if not str(link.get("href") or "").startswith(("http://", "https://")):
                link.unwrap()
        converter = MarkdownConverter(
            heading_style="ATX", escape_asterisks=False, escape_underscores=False, escape_misc=False
        )
        text = str(converter.convert_soup(soup))
    except RecursionError:
        raise ValueError("is HTML that is nested too deeply") from None
    return Page("\n".join(line.rstrip() for line in text.split("\n")).strip() + "\n", title or None)
