CREATE NODE TABLE Task(task_id STRING PRIMARY KEY, session_id STRING, kind STRING, state STRING, title STRING, description STRING, error_message STRING, seq INT64, version INT64, label INT64, integrity INT64);
CREATE NODE TABLE Action(action_id STRING PRIMARY KEY, task_id STRING, agent STRING, kind STRING, reasoning STRING, result STRING, decision_id STRING, at STRING, after STRING[], coordinates_with STRING[], seq INT64, version INT64, label INT64, integrity INT64);
CREATE REL TABLE LEADS_TO(FROM Action TO Action);
CREATE REL TABLE COORDINATES_WITH(FROM Action TO Action);
CREATE REL TABLE PART_OF(FROM Action TO Task);
CREATE NODE TABLE Removed(record STRING PRIMARY KEY, version INT64);
CREATE NODE TABLE Awaited(record STRING PRIMARY KEY, waiting STRING[]);
CREATE NODE TABLE Place(name STRING PRIMARY KEY, life STRING, seq INT64);
