"""Access control: the diode, the write filter, principals, releases and revocations."""
