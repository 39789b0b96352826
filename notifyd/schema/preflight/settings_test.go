package preflight

import (
	"maps"
	"strings"
	"testing"
)

// goodMySQL is what a well-configured MySQL says.
func goodMySQL() settings {
	return settings{
		addr: "db:3306", version: "8.4.3", account: "notify@%", maxBody: 4 << 20, clientPacket: 64 << 20,
		global: map[string]string{
			"log_bin": "ON", "server_id": "1", "binlog_format": "ROW", "binlog_row_image": "MINIMAL",
			"binlog_row_metadata": "FULL", "gtid_mode": "ON", "enforce_gtid_consistency": "ON",
			"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1", "read_only": "OFF",
			"super_read_only": "OFF", "innodb_read_only": "OFF", "max_allowed_packet": "67108864",
		},
		session: map[string]string{"sql_log_bin": "ON", "binlog_format": "ROW"},
	}
}

func TestMySQLSettingsAreToldApart(t *testing.T) {
	for name, c := range map[string]struct {
		change map[string]string
		says   string // "" is no problem
	}{
		"good":                  {nil, ""},
		"no binlog_format left": {map[string]string{"binlog_format": ""}, ""},
		"row image FULL":        {map[string]string{"binlog_row_image": "FULL"}, ""},
		"row image NOBLOB":      {map[string]string{"binlog_row_image": "NOBLOB"}, ""},
		"another row image":     {map[string]string{"binlog_row_image": "FULL_NODUP"}, "SET PERSIST binlog_row_image = 'MINIMAL'"},
		"gtid OFF": {map[string]string{"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"},
			": SET PERSIST enforce_gtid_consistency = ON; SET PERSIST gtid_mode = OFF_PERMISSIVE; SET PERSIST gtid_mode = ON_PERMISSIVE; SET PERSIST gtid_mode = ON"},
		"gtid OFF_PERMISSIVE": {map[string]string{"gtid_mode": "OFF_PERMISSIVE"},
			": SET PERSIST gtid_mode = ON_PERMISSIVE; SET PERSIST gtid_mode = ON"},
		"gtid ON_PERMISSIVE": {map[string]string{"gtid_mode": "ON_PERMISSIVE"}, "is 0: SET PERSIST gtid_mode = ON"},
		"consistency WARN": {map[string]string{"gtid_mode": "OFF", "enforce_gtid_consistency": "WARN"},
			"gtid_mode=OFF and enforce_gtid_consistency=WARN"},
		"MIXED format":     {map[string]string{"binlog_format": "MIXED"}, "SET PERSIST binlog_format = 'ROW'"},
		"super_read_only":  {map[string]string{"super_read_only": "ON", "read_only": "ON"}, "super_read_only=ON"},
		"server id 0":      {map[string]string{"server_id": "0"}, "server_id=0"},
		"multi-primary":    {map[string]string{"group_replication_group_name": "g", "group_replication_single_primary_mode": "OFF"}, "multi-primary"},
		"single primary":   {map[string]string{"group_replication_group_name": "g", "group_replication_single_primary_mode": "ON"}, ""},
		"no group":         {map[string]string{"group_replication_group_name": "", "group_replication_single_primary_mode": "OFF"}, ""},
		"Galera":           {map[string]string{"wsrep_on": "ON"}, "Galera"},
		"packet too small": {map[string]string{"max_allowed_packet": "9437183"}, "SET PERSIST max_allowed_packet = 9437184"},
		"packet enough":    {map[string]string{"max_allowed_packet": "9437184"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := goodMySQL()
			maps.Copy(s.global, c.change)
			var r Report
			s.check(&r)
			switch {
			case c.says == "" && r.Err() != nil:
				t.Errorf("refused: %v", r.Err())
			case c.says != "" && (len(r.Problems()) != 1 || !strings.Contains(r.Problems()[0].String(), c.says)):
				t.Errorf("want %q in %v", c.says, r.Err())
			}
		})
	}
}

func TestOnlyKnownServersAreSupported(t *testing.T) {
	for version, want := range map[string]bool{
		"8.0.35-27": true, "8.4.3": true, "9.7.4": true, "10.6.0-MariaDB": true, "8.0.39-cluster": true,
		"10.11.19-MariaDB-0+deb12u1": true, "12.1.2-MariaDB-log": true, "8.0.mysql_aurora.3.08.0": true,
		"5.7.44": false, "10.5.26-MariaDB": false, "8.0.11-TiDB-v7.5.0": false, "8.0.30-Vitess": false, "": false, "nonsense": false,
	} {
		if got := parseFlavor(version).supported(); got != want {
			t.Errorf("version %q supported: %t", version, got)
		}
	}
}
