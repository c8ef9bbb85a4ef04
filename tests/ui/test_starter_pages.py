"""The pages of the starter pack: each section is complete, and the cases that judge them fit."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from counterpoint.bench.triage import ExpectedAnswer, read_cases
from counterpoint.cli.lessons.starter import StarterPage, starter_pages

STARTER = Path(__file__).parents[2] / "examples" / "starter"
HOSTS = {
    "airflow": "airflow.apache.org",
    "dbt": "docs.getdbt.com",
    "kubernetes": "kubernetes.io",
    "postgresql": "www.postgresql.org",
    "spark": "spark.apache.org",
}


def sections(page: StarterPage) -> list[str]:
    """The sections of a page."""
    return page.text.split("\n## ")[1:]


def test_every_system_has_its_page_and_every_section_its_parts() -> None:
    assert [page.system for page in starter_pages()] == sorted(HOSTS)
    for page in starter_pages():
        assert 6 <= page.sections == len(sections(page)) <= 12
        for section in sections(page):
            assert re.search(r"^\*\*Symptom:\*\* .*`", section, re.MULTILINE), section
            assert re.search(r"^\*\*Cause:\*\* ", section, re.MULTILINE), section
            steps = re.findall(r"^(\d+)\. (Check|Fix|Verify)\b", section, re.MULTILINE)
            assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1)), section
            assert {"Fix", "Verify"} <= {kind for _, kind in steps}, section
            (link,) = re.findall(r"^Official documentation: (\S+)$", section, re.MULTILINE)
            assert urlsplit(link).hostname == HOSTS[page.system]


def test_the_cases_are_enough_and_point_into_one_section() -> None:
    cases = read_cases(STARTER)
    answerable = [case for case in cases if isinstance(case.expect, ExpectedAnswer)]
    assert len(answerable) >= 30
    assert len(cases) - len(answerable) >= 15
    assert len({case.id for case in cases}) == len(cases)
    pages = {f"docs/{page.system}.md": page for page in starter_pages()}
    for case in answerable:
        assert isinstance(case.expect, ExpectedAnswer)
        for text in case.expect.must:
            holding = [each for each in sections(pages[case.expect.source]) if text in each]
            assert len(holding) == 1, (case.id, text)


def test_no_error_of_a_case_was_copied_into_a_page() -> None:
    for case in read_cases(STARTER):
        lines = [line.strip() for line in (case.error_message or "").splitlines() if len(line.strip()) > 120]
        assert not [line for line in lines if any(line in page.text for page in starter_pages())], case.id
