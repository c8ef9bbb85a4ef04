-- Statements of search: candidates and their scores, the corpus in RAM, models and their indexes.

-- name: analyse_query
WITH words AS MATERIALIZED (
    SELECT lexeme, cardinality(positions) AS times, positions[1] AS place FROM unnest(to_tsvector('english', $4))
    ORDER BY times DESC, place LIMIT $7
),
phrases AS MATERIALIZED (
    SELECT query::text AS query, tsvector_to_array(to_tsvector('english', phrase)) AS words
    FROM (SELECT phrase, phraseto_tsquery('english', phrase) AS query FROM unnest($6::text[]) AS phrase)
    WHERE numnode(query) > 1
),
held AS MATERIALIZED (
    SELECT term, sum(rows)::bigint AS holders FROM lexicon
    WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) AND label <= $3 AND rows > 0
        AND term = ANY ($5 || ARRAY(SELECT lexeme FROM words UNION SELECT unnest(words) FROM phrases))
    GROUP BY term
)
SELECT
    -- For what follows in this transaction: where no table is scanned, a plan for the values only takes longer to make.
    set_config('plan_cache_mode', 'force_generic_plan', true) AS planned_once,
    EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass($8) AND indisvalid) AS has_index,
    ARRAY(SELECT lexeme FROM words ORDER BY times DESC, place) AS words,
    ARRAY(SELECT query FROM phrases) AS phrases,
    ARRAY(SELECT array_to_string(words, ' ') FROM phrases) AS phrase_words,
    ARRAY(SELECT term FROM held ORDER BY term) AS terms,
    ARRAY(SELECT holders FROM held ORDER BY term) AS holders,
    ARRAY(SELECT hashtextextended(term, 0) FROM held ORDER BY term) AS hashes,
    coalesce(sum(rows), 0)::bigint AS rows,
    coalesce(sum(length), 0)::bigint AS length,
    ARRAY(
        -- With the start of the server, because a transaction id is reused in a restored database.
        SELECT ARRAY[project, store, string_agg(changed::text, ' ' ORDER BY label) || ' ' || pg_postmaster_start_time(),
                     sum(rows)::text, sum(length)::text]
        FROM corpora WHERE project IN ($1, 'shared') AND store = ANY ($2::text[])
        GROUP BY project, store ORDER BY project, store
    ) AS states
FROM corpora
WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) AND label <= $3

-- name: candidates
-- The best rows by words and by meaning, with their scores. Composed of one of the parts `nearest_by_...`, of
-- `phrase_rows`, and of `only_these_rows` where nothing but some rows is searched.
-- $1 project, $2 stores, $3 highest label, $4 phrases (tsquery) and $5 the rarest term of each, $6 model,
-- $7 query vector, $8 terms that bring candidates and $9 their idf, $10 other terms and $11 their idf, $12 candidates a
-- leg, $13 rows there are and $14 their mean length, $15 terms that name one thing.
WITH question AS MATERIALIZED (
    SELECT $7::real[]::vector AS embedding
),
{nearest}
said AS MATERIALIZED (
{phrase_rows}
),
-- BM25 with k1 = 1.2 and b = 0.75; a row is as long as the number of its different lexemes.
matched AS (
    SELECT row, length, tf::float8 AS tf, idf, term = ANY ($15::text[]) AS naming
    FROM unnest($8::text[], $9::float8[]) AS given (term, idf)
    CROSS JOIN LATERAL (
        SELECT row, length, tf FROM postings
        WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) AND term = given.term AND label <= $3 {only}
        OFFSET 0
    ) AS found
    UNION ALL
    SELECT row, length, 1, ln(1 + ($13::float8 - count(*) OVER phrase + 0.5) / (count(*) OVER phrase + 0.5)), true
    FROM said WINDOW phrase AS (PARTITION BY n)
),
found AS MATERIALIZED (
    SELECT row, sum(lexical) AS lexical, sum(idf) AS covered, coalesce(sum(idf) FILTER (WHERE naming), 0) AS named,
        bool_or(near) AS near
    FROM (
        SELECT row, idf * tf * 2.2::float8 / (tf + (0.3::float8 + length * (0.9::float8 / $14::float8))) AS lexical,
            idf, naming, false AS near
        FROM matched
        UNION ALL
        SELECT row, 0, 0, false, true FROM nearest
    ) AS of_both_legs
    GROUP BY row
),
candidates AS MATERIALIZED (
    SELECT row, lexical, covered, named FROM found WHERE near
    UNION
    (SELECT row, lexical, covered, named FROM found WHERE lexical > 0 ORDER BY lexical DESC, row LIMIT $12)
),
-- With what the other terms add: all candidates of a term at once, in the order of the index.
scored AS MATERIALIZED (
    SELECT row, sum(lexical) AS lexical, sum(covered) AS covered, sum(named) AS named
    FROM (
        SELECT row, lexical, covered, named FROM candidates
        UNION ALL
        SELECT row, idf * tf * 2.2::float8 / (tf + (0.3::float8 + length * (0.9::float8 / $14::float8))), idf,
            CASE WHEN other = ANY ($15::text[]) THEN idf ELSE 0 END
        FROM unnest($10::text[], $11::float8[]) AS given (other, idf)
        CROSS JOIN LATERAL (
            SELECT row, tf, length FROM postings
            WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) AND term = other AND label <= $3
                AND row = ANY (ARRAY(SELECT row FROM candidates))
            OFFSET 0
        ) AS found
    ) AS of_all_terms
    GROUP BY row
)
-- A row at a time by its key: the planner would rather read the whole table for a hash join.
SELECT
    candidate.row, project, store, id, type, names, chars, candidate.lexical, candidate.covered, candidate.named,
    vector,
    (SELECT count(*) FROM nearest) AS nearest,
    (SELECT sum(lexical) FROM found) AS lexical_sum, (SELECT sum(lexical * lexical) FROM found) AS lexical_squares,
    (SELECT mean FROM spread) AS cosine_mean, (SELECT deviation FROM spread) AS cosine_deviation
FROM scored AS candidate
CROSS JOIN LATERAL (
    SELECT project, store, id, type, names, chars
    FROM vectors
    WHERE vectors.row = candidate.row AND project IN ($1, 'shared') AND label <= $3
    OFFSET 0
) AS shown
CROSS JOIN LATERAL (
    -- What the model would not have is found by its words alone.
    SELECT substr(vector_send(embedding), 5) AS vector
    FROM meanings
    WHERE meanings.row = candidate.row AND model = $6 AND project IN ($1, 'shared')
    OFFSET 0
) AS meant

-- name: nearest_by_scan
-- Materialized, every row in scope is read and no row is lost. All vectors are of length 1, so that their inner
-- product, here negative, is their cosine.
scope AS MATERIALIZED (
    SELECT row, embedding <#> (SELECT embedding FROM question) AS distance
    FROM meanings
    WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) AND model = $6 AND label <= $3
        AND embedding IS NOT NULL {only}
),
nearest AS MATERIALIZED (
    SELECT row FROM scope ORDER BY distance, row LIMIT $12
),
spread AS MATERIALIZED (
    SELECT -avg(distance) AS mean, stddev_pop(distance) AS deviation FROM scope
),

-- name: nearest_by_index
-- Each project by an index of its own, which holds no other's rows, and of one model, whose vectors are of one length.
nearest AS MATERIALIZED (
    SELECT row FROM (
        (SELECT row, embedding::{kind} <=> (SELECT embedding::{kind} FROM question) AS distance
         FROM meanings WHERE project = $1 AND store = ANY ($2::text[]) AND model = $6 AND label <= $3
         ORDER BY distance LIMIT $12)
        UNION ALL
        (SELECT row, embedding::{kind} <=> (SELECT embedding::{kind} FROM question) AS distance
         FROM meanings WHERE project = 'shared' AND $1 <> 'shared' AND store = ANY ($2::text[]) AND model = $6
            AND label <= $3
         ORDER BY distance LIMIT $12)) AS of_both
    ORDER BY distance LIMIT $12
),
-- How cosines are spread is estimated from some rows of the project.
spread AS MATERIALIZED (
    SELECT -avg(distance) AS mean, stddev_pop(distance) AS deviation FROM (
        SELECT embedding <#> (SELECT embedding FROM question) AS distance
        FROM meanings WHERE project = $1 AND store = ANY ($2::text[]) AND model = $6 AND label <= $3
        LIMIT 500) AS sampled
),

-- name: set_index_scan
-- The index is read until enough rows of the scope are found; by default the scan stops at the nearest of all projects.
SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', $1, true),
    set_config('plan_cache_mode', 'force_custom_plan', true)

-- name: phrase_rows
-- Rows that contain a phrase, looked for among those that contain its rarest term.
SELECT n, row, length
FROM unnest($4::text[], $5::text[]) WITH ORDINALITY AS given (phrase, guide, n)
CROSS JOIN LATERAL (
    SELECT row, length FROM postings
    WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) AND term = guide AND label <= $3 {only}
    OFFSET 0
) AS with_guide
CROSS JOIN LATERAL (
    SELECT lexemes FROM vectors WHERE vectors.row = with_guide.row OFFSET 0
) AS found
WHERE lexemes @@ phrase::tsquery

-- name: only_these_rows
AND row IN (SELECT unnest($16::bigint[]))

-- name: corpus
-- One statement, so that `changed` is the state of everything else in it. The arrays of one table are in the order in
-- which it is read. `changed` is computed as in `analyse_query`.
SELECT (
    SELECT string_agg(changed::text, ' ' ORDER BY label) || ' ' || pg_postmaster_start_time()
    FROM corpora WHERE project = $1 AND store = $2) AS changed, of_rows.*, of_terms.*
FROM (
    SELECT string_agg(int8send(v.row), '') AS rows, string_agg(int2send(v.label), '') AS labels,
        string_agg(int4send(length(lexemes)), '') AS lengths, string_agg(int4send(chars), '') AS chars,
        array_agg(id) AS ids, array_agg(type) AS types, array_agg(array_to_string(names, chr(31))) AS names,
        string_agg(boolsend(m.model IS NOT NULL), '') AS known,
        string_agg(boolsend(m.embedding IS NOT NULL), '') AS meant,
        string_agg(substr(vector_send(m.embedding), 5), '') AS vectors
    FROM vectors v LEFT JOIN meanings m ON m.row = v.row AND m.model = $3 AND m.project = $1
    WHERE v.project = $1 AND v.store = $2) AS of_rows,
    (
    SELECT string_agg(int8send(hashtextextended(term, 0)), '') AS terms, string_agg(int8send(row), '') AS holders,
        string_agg(int2send(tf), '') AS times
    FROM postings WHERE project = $1 AND store = $2) AS of_terms

-- name: is_index_valid
SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)

-- name: models_in_use
SELECT active AS model, dimensions FROM models UNION SELECT other, other_dimensions FROM models WHERE other IS NOT NULL

-- name: count_vectors
SELECT count(*) FROM meanings WHERE project = $1 AND model = $2

-- name: vector_indexes
SELECT relname FROM pg_class
WHERE relkind = 'i' AND (starts_with(relname, 'meanings_of_') OR starts_with(relname, 'vectors_of_'))

-- name: create_index_statement
SELECT format('CREATE INDEX CONCURRENTLY %I ON meanings USING hnsw ((embedding::%s) %s_cosine_ops)'
              ' WHERE project = %L AND model = %L', $1::text, $2::text, split_part($2, '(', 1), $3::text, $4::text)

-- name: models
SELECT active, dimensions, other, other_dimensions, other_is FROM models

-- name: set_first_model
INSERT INTO models (active, dimensions) VALUES ($1, $2)
ON CONFLICT (one) DO UPDATE SET active = excluded.active, dimensions = excluded.dimensions

-- name: set_other_model
UPDATE models SET other = $1, other_dimensions = $2, other_is = $3, since = now()

-- name: switch_models
UPDATE models
SET active = other, dimensions = other_dimensions, other = active, other_dimensions = dimensions, other_is = $1,
    since = now()

-- name: lock_lease
SELECT FROM lease WHERE shard = '0' AND epoch = $1 FOR SHARE

-- name: has_vectors
SELECT EXISTS (SELECT FROM vectors WHERE project = $1)

-- name: lacks_vectors
-- Whether a current row of a project has no vector of a model.
SELECT EXISTS (
    SELECT FROM vectors v WHERE project = $1 AND NOT EXISTS (
        SELECT FROM meanings m WHERE m.row = v.row AND m.model = $2 AND m.version = v.version))
