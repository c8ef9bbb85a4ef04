"""The bodies of notifications, by kind of receiver."""
