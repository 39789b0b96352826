package embedded_test

import (
	"sync"
	"testing"

	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

func TestServersThatStartSideBySideLeaveEachOtherAlone(t *testing.T) {
	server, err := dbtest.Server()
	if err != nil {
		t.Fatal(err)
	}
	const servers = 5
	var all sync.WaitGroup
	for range servers {
		dir := t.TempDir()
		all.Go(func() {
			db, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Server: server})
			if err != nil {
				t.Error(err)
				return
			}
			db.Kill()
		})
	}
	all.Wait()
}
