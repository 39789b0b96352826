package dsn_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"notifymirror/e2e/stage"
	"notifymirror/notifyd/schema/dsn"
)

func TestAnAddressNamesFilesForTLS(t *testing.T) {
	authority := stage.NewAuthority(t, "db")
	own := authority.Sign(time.Now().Add(time.Hour), "127.0.0.1")
	none, text := filepath.Join(t.TempDir(), "none.pem"), filepath.Join(t.TempDir(), "some.txt")
	if err := os.WriteFile(text, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		params string
		refuse string // empty: taken
	}{
		{"?tls-ca=" + authority.File, ""},
		{"?tls-ca=" + url.QueryEscape(authority.File), ""},
		{"?timeout=9s&tls-ca=" + authority.File + "&maxAllowedPacket=0", ""},
		{"?tls-ca=" + authority.File + "&timeout=9s", ""},
		{"?tls=true&tls-ca=" + authority.File + "&tls-cert=" + own.Cert + "&tls-key=" + own.Key, ""},
		{"?tls-ca=" + none, "TLS: tls-ca: open " + none},
		{"?tls-ca=" + text, "holds no certificate in PEM form"},
		{"?tls-ca=", "tls-ca: not the path of a file"},
		{"?tls-cert=" + own.Cert, "one of tls-cert and tls-key"},
		{"?tls-cert=" + own.Cert + "&tls-key=" + text, "tls-cert, tls-key: "},
		{"?tls=skip-verify&tls-ca=" + authority.File, "tls=skip-verify beside tls-ca"},
	} {
		for _, servers := range []string{"tcp(db:3306)", "tcp(db:3306,db-2:3306)"} {
			cfg, err := dsn.Parse("user:PLANTED/?tls-ca=x@" + servers + "/notify" + c.params)
			if c.refuse != "" {
				if !errors.Is(err, dsn.ErrInvalid) || !errors.Is(err, dsn.ErrTLS) || !strings.Contains(err.Error(), c.refuse) || strings.Contains(err.Error(), "PLANTED") {
					t.Errorf("%s: %v", c.params, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", c.params, err)
				continue
			}
			own := strings.Contains(c.params, "tls-key")
			if cfg.TLS == nil || cfg.TLS.RootCAs == nil || own != (cfg.TLS.GetClientCertificate != nil) || cfg.DBName != "notify" || len(cfg.Params) != 0 {
				t.Errorf("%s: %+v", c.params, cfg)
			}
			if at := dsn.At(cfg, "db:3306"); !strings.Contains(servers, ",") && at.TLS.ServerName != "db" {
				t.Errorf("the certificate is looked at for %q", at.TLS.ServerName)
			}
			if strings.Contains(c.params, "timeout") && cfg.Timeout != 9*time.Second {
				t.Errorf("%s: timeout %s", c.params, cfg.Timeout)
			}
		}
	}
}
