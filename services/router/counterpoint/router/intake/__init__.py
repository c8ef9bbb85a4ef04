"""Intake: arrivals by bus and HTTP, admitted and routed."""
