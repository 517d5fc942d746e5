-- schema 1

CREATE TABLE workload (
  id  TEXT PRIMARY KEY NOT NULL,  -- blake3 of the canonical bytes (docs/database.md), 64 lower-case hex digits
  key TEXT NOT NULL UNIQUE        -- canonical workload key, tw1;...
) STRICT;

CREATE TABLE target (
  id  TEXT PRIMARY KEY NOT NULL,
  key TEXT NOT NULL UNIQUE        -- canonical target key, tt1;...
) STRICT;

CREATE TABLE observation (
  id           TEXT PRIMARY KEY NOT NULL,
  workload     TEXT NOT NULL REFERENCES workload(id),
  target       TEXT NOT NULL REFERENCES target(id),
  generator    TEXT NOT NULL,     -- who turns the schedule into a kernel: tilewright/1
  schedule     TEXT NOT NULL,     -- JSON object: parameter name -> integer or name
  outcome      TEXT NOT NULL,     -- ok, compile_error, resource_limit, wrong, timeout, crash, lost_device
  phase        TEXT NOT NULL CHECK (phase IN ('screen', 'final')),
  samples_ns   TEXT NOT NULL,     -- JSON array: nanoseconds per call of the verified kernel; [] unless outcome is ok
  at_least_ns  REAL,              -- set: censored, timing was cut off, one call takes at least this long
  environment  TEXT NOT NULL,     -- JSON object of strings: driver, clocks, governor, cache, launch, ...
  program_hash TEXT,              -- of the lowered program's text; finds drift of the generator
  code_hash    TEXT,              -- of the compiled code
  input        TEXT NOT NULL,     -- distribution of the input values while timing
  run          TEXT NOT NULL,     -- which run of the tuner measured this
  sequence     INTEGER NOT NULL,  -- position within the run
  measured_at  INTEGER NOT NULL   -- seconds since 1970-01-01 UTC
) STRICT;

CREATE TABLE verdict (
  id         TEXT PRIMARY KEY NOT NULL,
  workload   TEXT NOT NULL REFERENCES workload(id),
  target     TEXT NOT NULL REFERENCES target(id),
  generator  TEXT NOT NULL,
  schedule   TEXT NOT NULL,       -- the schedule judged
  baseline   TEXT NOT NULL,       -- the schedule it was compared with, usually the default
  decision   TEXT NOT NULL CHECK (decision IN ('keep', 'demote', 'no_gain')),
  ratio      REAL NOT NULL,       -- time of the baseline / time of the schedule; above 1: the schedule is faster
  ratio_lo   REAL NOT NULL,       -- 95 % interval of the ratio
  ratio_hi   REAL NOT NULL,
  run        TEXT NOT NULL,
  sequence   INTEGER NOT NULL,
  decided_at INTEGER NOT NULL
) STRICT;

CREATE INDEX observation_key ON observation (workload, target, generator, id);

CREATE INDEX observation_decisive ON observation (workload, target, generator, id)
  WHERE phase = 'final' OR outcome IN ('wrong', 'timeout', 'crash', 'lost_device');

CREATE INDEX observation_run ON observation (run, sequence);

CREATE INDEX verdict_key ON verdict (workload, target, generator, id);

CREATE TRIGGER workload_is_immutable BEFORE UPDATE ON workload BEGIN SELECT RAISE(ABORT, 'a stored fact never changes'); END;

CREATE TRIGGER target_is_immutable BEFORE UPDATE ON target BEGIN SELECT RAISE(ABORT, 'a stored fact never changes'); END;

CREATE TRIGGER observation_is_immutable BEFORE UPDATE ON observation BEGIN SELECT RAISE(ABORT, 'a stored fact never changes'); END;

CREATE TRIGGER verdict_is_immutable BEFORE UPDATE ON verdict BEGIN SELECT RAISE(ABORT, 'a stored fact never changes'); END;

CREATE TABLE tally (              -- local: which rows decide a look-up; a lost or added row is noticed
  workload  TEXT NOT NULL,
  target    TEXT NOT NULL,
  generator TEXT NOT NULL,
  rows      INTEGER NOT NULL,
  digest    TEXT NOT NULL,        -- exclusive or of the ids of those rows
  PRIMARY KEY (workload, target, generator)
) STRICT, WITHOUT ROWID;

CREATE TABLE session (            -- local: one tuning night
  id         TEXT PRIMARY KEY NOT NULL,
  command    TEXT NOT NULL,
  seed       TEXT NOT NULL,       -- decimal; may exceed 2^63
  strategy   TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at   INTEGER,             -- null: running or interrupted
  settings   TEXT NOT NULL        -- JSON object: the effective configuration
) STRICT;

CREATE TABLE event (              -- local: the log from which a search is resumed
  session  TEXT NOT NULL REFERENCES session(id),
  stream   TEXT NOT NULL,         -- which search of the session; '' for the session itself
  sequence INTEGER NOT NULL,      -- 0, 1, 2, ... within the stream, without gaps
  kind     TEXT NOT NULL,         -- ask, tell, final, ...
  body     TEXT NOT NULL,         -- JSON
  hash     TEXT NOT NULL,         -- blake3 of the canonical bytes
  PRIMARY KEY (session, stream, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE quarantine (         -- local: written before a candidate runs, removed with its observation
  workload    TEXT NOT NULL,
  target      TEXT NOT NULL,
  generator   TEXT NOT NULL,
  schedule    TEXT NOT NULL,
  session     TEXT,
  since       INTEGER NOT NULL,
  left_behind INTEGER NOT NULL DEFAULT 0, -- 1: the run that wrote it died; do not run this candidate again
  PRIMARY KEY (workload, target, generator, schedule)
) STRICT, WITHOUT ROWID;

CREATE TABLE trust (              -- local: signing keys, and rows that came from elsewhere
  subject  TEXT PRIMARY KEY NOT NULL, -- public key, or id of an observation or verdict
  kind     TEXT NOT NULL CHECK (kind IN ('key', 'row')),
  accepted INTEGER NOT NULL,      -- rows: 0 until verified again on this machine; such rows decide nothing
  source   TEXT NOT NULL,
  added_at INTEGER NOT NULL
) STRICT;

CREATE TABLE prediction (         -- local: what a cost model expects where nothing was measured
  workload  TEXT NOT NULL,
  target    TEXT NOT NULL,
  generator TEXT NOT NULL,
  schedule  TEXT NOT NULL,
  ns        REAL NOT NULL,
  ns_lo     REAL NOT NULL,
  ns_hi     REAL NOT NULL,
  model     TEXT NOT NULL,
  made_at   INTEGER NOT NULL,
  PRIMARY KEY (workload, target, generator, schedule)
) STRICT, WITHOUT ROWID;

CREATE TABLE forgotten (          -- local: ids removed on purpose; a merge does not bring them back
  id     TEXT PRIMARY KEY NOT NULL,
  reason TEXT NOT NULL,
  at     INTEGER NOT NULL
) STRICT;

CREATE TABLE peak (               -- local: what the device can do, to put times in proportion
  device      TEXT NOT NULL,
  what        TEXT NOT NULL,      -- fma_f32_flops_per_s, read_bytes_per_s, ...
  value       REAL NOT NULL,
  measured_at INTEGER NOT NULL,
  PRIMARY KEY (device, what)
) STRICT, WITHOUT ROWID;

CREATE VIEW verified AS           -- final observations that may carry an answer
SELECT o.* FROM observation o
WHERE o.phase = 'final' AND o.outcome = 'ok' AND o.at_least_ns IS NULL AND o.samples_ns <> '[]'
  AND NOT EXISTS (SELECT 1 FROM trust t WHERE t.subject = o.id AND t.accepted = 0)
  AND NOT EXISTS (
    SELECT 1 FROM observation x
    WHERE x.workload = o.workload AND x.target = o.target AND x.generator = o.generator
      AND x.outcome IN ('wrong', 'timeout', 'crash', 'lost_device')
      AND NOT EXISTS (SELECT 1 FROM trust t WHERE t.subject = x.id AND t.accepted = 0)
      AND (x.program_hash = o.program_hash
        OR (x.program_hash IS NULL AND o.program_hash IS NULL AND x.schedule = o.schedule)));

CREATE VIEW confidence AS         -- one row per verified schedule: median time, its 95 % interval, what it rests on
WITH sample AS (
  SELECT v.workload, v.target, v.generator, v.schedule, s.value AS ns,
    row_number() OVER (PARTITION BY v.workload, v.target, v.generator, v.schedule ORDER BY s.value) AS r,
    count(*) OVER (PARTITION BY v.workload, v.target, v.generator, v.schedule) AS n
  FROM verified v, json_each(v.samples_ns) s),
pooled AS (
  SELECT workload, target, generator, schedule, n AS samples,
    avg(ns) FILTER (WHERE r IN ((n + 1) / 2, n / 2 + 1)) AS ns,
    -- order statistics r and n+1-r enclose the median with 95 % when (n+1-2r)^2 >= 1.96^2 n
    coalesce(max(ns) FILTER (WHERE n + 1 - 2 * r > 0 AND 10000 * (n + 1 - 2 * r) * (n + 1 - 2 * r) >= 38416 * n),
      min(ns)) AS ns_lo,
    coalesce(min(ns) FILTER (WHERE 2 * r - n - 1 > 0 AND 10000 * (2 * r - n - 1) * (2 * r - n - 1) >= 38416 * n),
      max(ns)) AS ns_hi
  FROM sample GROUP BY workload, target, generator, schedule)
SELECT p.*, count(DISTINCT v.run) AS runs, max(v.measured_at) AS measured_at
FROM pooled p JOIN verified v USING (workload, target, generator, schedule)
GROUP BY p.workload, p.target, p.generator, p.schedule;

CREATE VIEW standing AS           -- the newest verdict on each schedule
SELECT * FROM (
  SELECT v.*, row_number() OVER (PARTITION BY workload, target, generator, schedule
    ORDER BY decided_at DESC, id DESC) AS age_rank FROM verdict v
  WHERE NOT EXISTS (SELECT 1 FROM trust t WHERE t.subject = v.id AND t.accepted = 0))
WHERE age_rank = 1;

CREATE VIEW winner AS             -- what a look-up answers
SELECT workload, target, generator, schedule,
  CASE class WHEN 0 THEN 'winner' WHEN 1 THEN 'default' ELSE 'best_final' END AS provenance,
  ns, ns_lo, ns_hi, samples, runs, measured_at
FROM (
  SELECT c.*, row_number() OVER (PARTITION BY workload, target, generator ORDER BY class, ns, schedule) AS place
  FROM (
    SELECT c.*, CASE
      WHEN s.decision = 'keep' THEN 0
      WHEN c.schedule = (
        SELECT v.baseline FROM standing v
        WHERE v.workload = c.workload AND v.target = c.target AND v.generator = c.generator
        ORDER BY v.decided_at DESC, v.id DESC LIMIT 1) THEN 1
      ELSE 2 END AS class
    FROM confidence c LEFT JOIN standing s USING (workload, target, generator, schedule)
    WHERE s.decision IS NULL OR s.decision <> 'demote') c)
WHERE place = 1;

CREATE VIEW age AS                -- days since each answer was last measured, by this machine's clock
SELECT workload, target, generator, schedule, provenance, (unixepoch() - measured_at) / 86400.0 AS days FROM winner;
