"""Metrics of runs over questions."""

from prometheus_client import Counter

from counterpoint.developer.rag.run import RULES, Node, Run

ROUTES = Counter("counterpoint_rag_routes_total", "Questions by search mode, and who chose it", ["mode", "by"])
CORRECTIONS = Counter("counterpoint_rag_corrections_total", "Rewrites of questions")
VALIDATIONS = Counter("counterpoint_rag_validations_total", "Sentences of drafts", ["verdict"])
ENDINGS = Counter("counterpoint_rag_endings_total", "Runs by outcome", ["ending"])


def observe(node: Node, before: Run, after: Run) -> None:
    """Count a step."""
    if node == "route" and after.route is not None:
        ROUTES.labels(after.route.mode, "rules" if after.route.by == RULES else "model").inc()
    if after.rewrites > before.rewrites:
        CORRECTIONS.inc()
    if node == "validate":
        for verdict in after.verdicts:
            VALIDATIONS.labels("supported" if verdict.supported else "unsupported").inc()
    if after.ending is not None:
        ENDINGS.labels(after.ending).inc()
