"""The end of a process at an await."""


class ProcessDeath(BaseException):
    """The process ends here."""
