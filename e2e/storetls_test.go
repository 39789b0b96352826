package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"notifymirror/e2e/stage"
	"notifymirror/notifyd/embedded"
	"notifymirror/notifyd/embedded/dbtest"
)

// A server whose accounts must come by TLS with a certificate lets in notifyd and canald, its
// binlog too. Who does not trust the server's certificate, or has none, is told so.
func TestAStoreThatWantsCertificates(t *testing.T) {
	authority := stage.NewAuthority(t, "db")
	server := authority.Sign(time.Now().Add(time.Hour), "127.0.0.1")
	own := authority.Sign(time.Now().Add(time.Hour), "127.0.0.1")
	db := dbtest.Private(t, embedded.Config{Extra: []string{"--ssl-ca=" + authority.File, "--ssl-cert=" + server.Cert, "--ssl-key=" + server.Key}})
	s := stage.On(t, db)
	admin := s.Open()
	defer admin.Close()
	for _, statement := range []string{
		"CREATE USER 'secure'@'%' IDENTIFIED BY 'right' REQUIRE X509",
		"GRANT ALL ON *.* TO 'secure'@'%'",
	} {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	_, place, _ := strings.Cut(s.DSN, "@")
	place, _, _ = strings.Cut(place, "?")
	address := func(params string) string { return "secure:right@" + place + params }
	for _, c := range []struct{ params, says string }{
		{"", "REQUIRE SSL, add ?tls-ca=FILE"},
		{"?tls-ca=" + authority.File, "REQUIRE X509, name tls-cert=FILE"},
		{"?tls-ca=" + stage.NewAuthority(t, "other").File, "name the authority that signed the server's certificate"},
		{"?tls=true", "name the authority that signed the server's certificate"},
	} {
		s.DSN = address(c.params)
		r := stage.Command(t, "notifyd", "--config", s.Notifyd("refused").Config())
		if r.Code == 0 || !strings.Contains(r.Stderr, c.says) || strings.Contains(r.Stderr, "right@") {
			t.Errorf("with %q: exit %d: %s", c.params, r.Code, r.Stderr)
		}
	}

	s.DSN = address(fmt.Sprintf("?tls-ca=%s&tls-cert=%s&tls-key=%s", authority.File, own.Cert, own.Key))
	broker, _, c := s.Running()
	s.Topic(c, "trades")
	billing := s.Listen(c, "billing", "trades")
	load := s.Load(c, "trades", 1)
	load.AwaitMore(100, time.Minute)
	ids := load.Stop()
	billing.AwaitAll(ids, time.Minute)
	s.Mirror("trades").Await(len(ids), time.Minute)
	if out := s.Notify(broker, "mirror", "tail", "trades", "--prefix", s.Prefix, "--from", "oldest", "--count", "1"); out == "" {
		t.Error("nothing in the mirror")
	}
}
