-- Format 1 of records.db. All times are milliseconds since 1970; a negative one stands for a
-- moment past the year 292 million.

-- One narrow row per key, updated in place.
CREATE TABLE keys (
  id             BLOB    PRIMARY KEY,  -- keyed hash of tenant, scope and key
  fingerprint    BLOB    NOT NULL,     -- which request the key stands for
  state          INTEGER NOT NULL,     -- 1 claimed, 2 completed, 3 failed, 4 held, 5 tombstone
  state_at       INTEGER NOT NULL,     -- end of the lease, time of the answer, held since
  fence          INTEGER NOT NULL,     -- grows with each claim
  attempt        INTEGER NOT NULL,     -- runs that may have been sent
  attempt_id     BLOB    NOT NULL,     -- random, one per claim
  birth          BLOB,                 -- attempt_id of the first claim, where it is another
  recover        INTEGER NOT NULL,     -- 1 resume, 2 hold, 3 resume from a recovery point only
  created_at     INTEGER NOT NULL,
  expires_at     INTEGER NOT NULL,
  retention_ms   INTEGER NOT NULL,
  remember_ms    INTEGER NOT NULL,     -- how long a completed key is known after it expired
  tenant         BLOB    NOT NULL,     -- keyed hash
  tenant_name    TEXT,
  key            TEXT    NOT NULL,
  route          TEXT    NOT NULL,
  recovery_point TEXT,                 -- its data is in checkpoints
  boot           INTEGER NOT NULL,     -- which start of the store wrote the row
  answer_bucket  INTEGER,              -- the answer is in the table answers_<bucket>
  answer_row     INTEGER,              -- at this row
  sum            INTEGER NOT NULL      -- checksum of all columns
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
  id   BLOB PRIMARY KEY,
  body BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE facts (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Answers lie in tables made as they are needed, one for each stretch of expiry time:
-- answers_<bucket> (row INTEGER PRIMARY KEY, body BLOB), where <bucket> is the stretch's end in
-- quarters of an hour since 1970.
