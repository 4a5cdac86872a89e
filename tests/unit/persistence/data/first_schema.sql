-- A database as the first schema had it; made with sqlite3's iterdump, and not to be changed.
BEGIN TRANSACTION;
CREATE TABLE acknowledgements (
	channel_id TEXT NOT NULL, 
	request_id TEXT NOT NULL, 
	participant_id TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	segments BLOB NOT NULL, 
	PRIMARY KEY (channel_id, request_id, participant_id), 
	FOREIGN KEY(channel_id) REFERENCES channels (channel_id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "acknowledgements" VALUES('room','plain','plain',1,X'00FF');
CREATE TABLE bodies (
	channel_id TEXT NOT NULL, 
	message_id TEXT NOT NULL, 
	part TEXT NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY (channel_id, message_id, part), 
	FOREIGN KEY(channel_id) REFERENCES channels (channel_id) ON DELETE CASCADE
);
INSERT INTO "bodies" VALUES('room','plain','plain',X'00FF');
CREATE TABLE channel_states (
	channel_id TEXT NOT NULL, 
	content_topic TEXT NOT NULL, 
	sender_id TEXT NOT NULL, 
	bloom_capacity BIGINT NOT NULL, 
	bloom_error_rate DOUBLE NOT NULL, 
	created_ns BIGINT NOT NULL, 
	lamport_clock BIGINT NOT NULL, 
	last_wrap_ns BIGINT NOT NULL, 
	floor BIGINT NOT NULL, 
	settled_at_ns BIGINT NOT NULL, 
	last_event_sequence BIGINT NOT NULL, 
	last_seen_ns BIGINT NOT NULL, 
	conflict_seen BOOLEAN NOT NULL, 
	frontier TEXT NOT NULL, 
	PRIMARY KEY (channel_id), 
	FOREIGN KEY(channel_id) REFERENCES channels (channel_id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "channel_states" VALUES('room','plain','plain',1,0.001,1,1,1,1,1,1,1,1,'[""]');
CREATE TABLE channels (
	channel_id TEXT NOT NULL, 
	event_count BIGINT DEFAULT '0' NOT NULL, 
	event_bytes BIGINT DEFAULT '0' NOT NULL, 
	newest_event BIGINT DEFAULT '0' NOT NULL, 
	removed_through BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (channel_id)
)
 WITHOUT ROWID

;
INSERT INTO "channels" VALUES('hall',0,0,0,0);
INSERT INTO "channels" VALUES('room',3,795,5,2);
CREATE TABLE completed (
	channel_id TEXT NOT NULL, 
	set_digest BLOB NOT NULL, 
	held BLOB NOT NULL, 
	completed_ns BIGINT NOT NULL, 
	PRIMARY KEY (channel_id, set_digest), 
	FOREIGN KEY(channel_id) REFERENCES channels (channel_id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "completed" VALUES('room',X'00FF',X'00FF',1);
CREATE TABLE debts (
	channel_id TEXT NOT NULL, 
	message_id TEXT NOT NULL, 
	PRIMARY KEY (channel_id, message_id), 
	FOREIGN KEY(channel_id) REFERENCES channels (channel_id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "debts" VALUES('room','plain');
CREATE TABLE events (
	channel_id TEXT NOT NULL, 
	sequence BIGINT NOT NULL, 
	name TEXT NOT NULL, 
	time_ns BIGINT NOT NULL, 
	request_id TEXT, 
	message_id TEXT, 
	sender_id TEXT, 
	payload BLOB, 
	detail TEXT NOT NULL, 
	PRIMARY KEY (channel_id, sequence), 
	FOREIGN KEY(channel_id) REFERENCES channels (channel_id) ON DELETE CASCADE
);
INSERT INTO "events" VALUES('room',3,'Grüße, 😀 ''a'' "b"; -- %s
\',9223372036854775807,'Grüße, 😀 ''a'' "b"; -- %s
\','Grüße, 😀 ''a'' "b"; -- %s
\','Grüße, 😀 ''a'' "b"; -- %s
\',X'7061796C6F6164','{}');
INSERT INTO "events" VALUES('room',4,'Grüße, 😀 ''a'' "b"; -- %s
\',9223372036854775807,'Grüße, 😀 ''a'' "b"; -- %s
\','Grüße, 😀 ''a'' "b"; -- %s
\','Grüße, 😀 ''a'' "b"; -- %s
\',X'7061796C6F6164','{}');
INSERT INTO "events" VALUES('room',5,'Grüße, 😀 ''a'' "b"; -- %s
\',9223372036854775807,'Grüße, 😀 ''a'' "b"; -- %s
\','Grüße, 😀 ''a'' "b"; -- %s
\','Grüße, 😀 ''a'' "b"; -- %s
\',X'7061796C6F6164','{}');
CREATE TABLE ledger (
	scope TEXT NOT NULL, 
	epoch BIGINT NOT NULL, 
	used BIGINT NOT NULL, 
	PRIMARY KEY (scope)
)
 WITHOUT ROWID

;
INSERT INTO "ledger" VALUES('node:600',3,4);
CREATE TABLE log (
	channel_id TEXT NOT NULL, 
	message_id TEXT NOT NULL, 
	lamport_timestamp BIGINT NOT NULL, 
	sender_id TEXT NOT NULL, 
	retrieval_hint BLOB, 
	logged BOOLEAN NOT NULL, 
	segment_index BIGINT NOT NULL, 
	segment_count BIGINT NOT NULL, 
	proven BOOLEAN NOT NULL, 
	PRIMARY KEY (channel_id, message_id), 
	FOREIGN KEY(channel_id) REFERENCES channels (channel_id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "log" VALUES('hall','',0,'',NULL,0,0,0,0);
INSERT INTO "log" VALUES('hall','plain',1,'plain',X'',1,1,1,1);
INSERT INTO "log" VALUES('room','plain',1,'plain',X'',1,1,1,1);
CREATE TABLE lost (
	channel_id TEXT NOT NULL, 
	message_id TEXT NOT NULL, 
	lost_ns BIGINT NOT NULL, 
	PRIMARY KEY (channel_id, message_id), 
	FOREIGN KEY(channel_id) REFERENCES channels (channel_id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "lost" VALUES('room','plain',1);
CREATE TABLE outgoing (
	channel_id TEXT NOT NULL, 
	request_id TEXT NOT NULL, 
	segment_index BIGINT NOT NULL, 
	message_id TEXT NOT NULL, 
	lamport_timestamp BIGINT NOT NULL, 
	history TEXT NOT NULL, 
	propagated BOOLEAN NOT NULL, 
	transmissions BIGINT NOT NULL, 
	retransmissions BIGINT NOT NULL, 
	deadline_ns BIGINT NOT NULL, 
	PRIMARY KEY (channel_id, request_id, segment_index), 
	FOREIGN KEY(channel_id) REFERENCES channels (channel_id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "outgoing" VALUES('room','plain',1,'plain',1,'[""]',1,1,1,1);
CREATE TABLE parity (
	channel_id TEXT NOT NULL, 
	arrival BIGINT NOT NULL, 
	set_number BIGINT NOT NULL, 
	segment_index BIGINT NOT NULL, 
	received_ns BIGINT NOT NULL, 
	history BLOB NOT NULL, 
	chunk BLOB NOT NULL, 
	PRIMARY KEY (channel_id, arrival), 
	FOREIGN KEY(channel_id) REFERENCES channels (channel_id) ON DELETE CASCADE
);
INSERT INTO "parity" VALUES('room',1,1,1,1,X'00FF',X'00FF');
CREATE TABLE pending (
	channel_id TEXT NOT NULL, 
	message_id TEXT NOT NULL, 
	sender_id TEXT NOT NULL, 
	lamport_timestamp BIGINT NOT NULL, 
	received_ns BIGINT NOT NULL, 
	history BLOB NOT NULL, 
	content BLOB NOT NULL, 
	set_number BIGINT NOT NULL, 
	arrival BIGINT NOT NULL, 
	PRIMARY KEY (channel_id, message_id), 
	FOREIGN KEY(channel_id) REFERENCES channels (channel_id) ON DELETE CASCADE
);
INSERT INTO "pending" VALUES('room','plain','plain',1,1,X'00FF',X'00FF',1,1);
CREATE TABLE requests (
	channel_id TEXT NOT NULL, 
	request_id TEXT NOT NULL, 
	created_ns BIGINT NOT NULL, 
	payload_bytes BIGINT NOT NULL, 
	segment_count BIGINT NOT NULL, 
	ephemeral BOOLEAN NOT NULL, 
	sent BOOLEAN NOT NULL, 
	state TEXT NOT NULL, 
	error TEXT NOT NULL, 
	leader TEXT, 
	lamport_timestamp BIGINT NOT NULL, 
	parity_count BIGINT NOT NULL, 
	PRIMARY KEY (channel_id, request_id), 
	FOREIGN KEY(channel_id) REFERENCES channels (channel_id) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "requests" VALUES('room','plain',1,1,1,1,1,'plain','plain','',1,1);
CREATE TABLE schema_version (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "schema_version" VALUES(1);
COMMIT;
