"""Lessons as pages of markdown: their form, their folder, and what an import of them adds."""
