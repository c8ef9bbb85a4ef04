-- $1 project, $2 stores, $3 highest label, $4 phrases (tsquery) and $5 the rarest term of each, $6 model, $7 query vector,
-- $8 terms that bring candidates and $9 their idf, $10 other terms and $11 their idf, $12 candidates a leg, $13 rows there
-- are and $14 their mean length, $15 terms that name one thing.
WITH question AS MATERIALIZED (
    SELECT $7::real[]::vector AS embedding
),
-- Materialized, every row in scope is read and no row is lost. All vectors are of length 1, so that their inner product,
-- here negative, is their cosine.
scope AS MATERIALIZED (
    SELECT row, embedding <#> (SELECT embedding FROM question) AS distance
    FROM meanings
    WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) AND model = $6 AND label <= $3 AND embedding IS NOT NULL
),
nearest AS MATERIALIZED (
    SELECT row FROM scope ORDER BY distance, row LIMIT $12
),
spread AS MATERIALIZED (
    SELECT -avg(distance) AS mean, stddev_pop(distance) AS deviation FROM scope
),
said AS MATERIALIZED (
    SELECT n, row, length
    FROM unnest($4::text[], $5::text[]) WITH ORDINALITY AS given (phrase, guide, n)
    CROSS JOIN LATERAL (
        SELECT row, length FROM postings
        WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) AND term = guide AND label <= $3
        OFFSET 0
    ) AS with_guide
    CROSS JOIN LATERAL (
        SELECT lexemes FROM vectors WHERE vectors.row = with_guide.row OFFSET 0
    ) AS found
    WHERE lexemes @@ phrase::tsquery
),
-- BM25 with k1 = 1.2 and b = 0.75; a row is as long as the number of its different lexemes.
matched AS (
    SELECT row, length, tf::float8 AS tf, idf, term = ANY ($15::text[]) AS naming
    FROM unnest($8::text[], $9::float8[]) AS given (term, idf)
    CROSS JOIN LATERAL (
        SELECT row, length, tf FROM postings
        WHERE project IN ($1, 'shared') AND store = ANY ($2::text[]) AND term = given.term AND label <= $3
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
