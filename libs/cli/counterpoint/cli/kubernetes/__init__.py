"""Events of a Kubernetes cluster: read from its API, and reported as tasks."""
