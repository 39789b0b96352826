package dsn

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNoPartOfAnAddressThatIsRefusedIsShown(t *testing.T) {
	const password = "PLANTED"
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.StringMatching(`[a-z:@/()?&=.]{0,12}`).Draw(t, "before")
		after := rapid.StringMatching(`[a-z:@/()?&=.%]{0,20}`).Draw(t, "after")
		_, err := Parse(before + password + after)
		if err == nil {
			return
		}
		if !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), password) {
			t.Fatalf("%s%s%s: %v", before, password, after, err)
		}
	})
}

func TestAddressKeepsItsPartsAndShowsAllButThePassword(t *testing.T) {
	cfg, err := Parse("user:p@ss/w:rd@tcp(db:3306)/notify?timeout=9s&maxAllowedPacket=0")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Passwd != "p@ss/w:rd" || cfg.Timeout != 9*time.Second {
		t.Errorf("password %q, timeout %s", cfg.Passwd, cfg.Timeout)
	}
	if got := Redact(cfg); got != "user@tcp(db:3306)/notify" {
		t.Errorf("shown as %s", got)
	}
	if cfg, err = Parse("user@/notify"); err != nil || cfg.Addr != "127.0.0.1:3306" || cfg.Timeout != connectTimeout {
		t.Errorf("%+v, %v", cfg, err)
	}
}

func TestAnAddressMayNameSeveralServers(t *testing.T) {
	cfg, err := Parse("user:p(a,b)/w@tcp(db-1, db-2:3307)/notify?timeout=9s")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Passwd != "p(a,b)/w" || cfg.Addr != "db-1:3306,db-2:3307" || cfg.Timeout != 9*time.Second || !NewPrimary(cfg).Several() {
		t.Errorf("%+v", cfg)
	}
	if got := Redact(cfg); got != "user@tcp(db-1:3306,db-2:3307)/notify" {
		t.Errorf("shown as %s", got)
	}
	for _, wrong := range []string{"u:PLANTED@tcp(a,)/n", "u:PLANTED@tcp(a:1,a:1)/n", "u:PLANTED@unix(/a,/b)/n", "u:PLANTED@tcp(,)/n"} {
		if _, err := Parse(wrong); !errors.Is(err, ErrInvalid) || strings.Contains(err.Error(), "PLANTED") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if cfg, err = Parse("user@tcp(db)/notify"); err != nil || NewPrimary(cfg).Several() {
		t.Errorf("%+v, %v", cfg, err)
	}
}
