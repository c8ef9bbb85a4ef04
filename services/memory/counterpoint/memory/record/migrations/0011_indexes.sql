-- One index of all projects finds other rows of a project when another project has other rows. A project that needs an
-- index has one of its own, made by a job: `counterpoint.memory.index`.

DROP INDEX vectors_by_meaning;
