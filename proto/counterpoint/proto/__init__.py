"""The wire contract of Counterpoint: messages, subjects and record shapes. Depends on pydantic alone."""
