-- Accounts of a store: type this on the primary as an administrator. MySQL 8.0 to 9.x and
-- MariaDB 10.6 and newer take it as it stands.
--
-- Before: replace the schema (notify), the hosts ('10.%') and the passwords. Add REQUIRE SSL
-- to each CREATE USER where the network between the machines is not yours alone.
-- Never share an account: each can do its own work and no more.

-- 1. For `notifyd migrate`: makes and upgrades the tables. The running daemon needs it not.
CREATE USER 'notify_migrate'@'10.%' IDENTIFIED BY 'CHANGE-ME-migrate-1';
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX ON notify.* TO 'notify_migrate'@'10.%';

-- 2. For notifyd. With CREATE and ALTER added it makes the tables itself at its first start, and upgrades them.
CREATE USER 'notify_broker'@'10.%' IDENTIFIED BY 'CHANGE-ME-broker-1';
GRANT SELECT, INSERT, UPDATE, DELETE ON notify.* TO 'notify_broker'@'10.%';

-- 3. For canald: the binlog, and (below) the one row that says which store this is and where
--    its binlog begins. Caution: REPLICATION SLAVE is global. It shows the changes of every
--    schema on the server, so give the store a server of its own where that matters.
--    REPLICATION CLIENT (MariaDB shows it as BINLOG MONITOR) can be left out; then nobody is
--    told before the server purges binlog that was not copied yet, and on MariaDB no gap that
--    it left can be accepted.
CREATE USER 'notify_mirror'@'10.%' IDENTIFIED BY 'CHANGE-ME-mirror-1';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'notify_mirror'@'10.%';

-- 4. For an application that inserts into the outbox inside its own transactions; one
--    account for each application.
CREATE USER 'notify_app'@'10.%' IDENTIFIED BY 'CHANGE-ME-app-1';

-- Now make the tables: notifyd migrate. Servers refuse a right on a table that is missing,
-- so these two come after it.
GRANT SELECT ON notify.store TO 'notify_mirror'@'10.%';
GRANT INSERT ON notify.outbox TO 'notify_app'@'10.%';

-- Optional, only while canald backfills a store that was used before it was mirrored, or copies
-- behind a gap what the tables still hold: it reads the messages, and locks the epoch rows for
-- some milliseconds.
-- GRANT SELECT ON notify.* TO 'notify_mirror'@'10.%';
-- GRANT UPDATE ON notify.epoch TO 'notify_mirror'@'10.%';
