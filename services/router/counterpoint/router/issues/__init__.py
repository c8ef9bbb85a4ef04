"""Issue synchronization: incidents and plans as issues of GitHub, GitLab, Gitea and Forgejo."""
