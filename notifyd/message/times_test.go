package message

import (
	"maps"
	"testing"

	"pgregory.net/rapid"
)

func TestTimesSurviveTheHeadersOfARow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		own := rapid.MapOf(rapid.StringMatching(`[a-z]{1,5}`), rapid.String()).Draw(t, "headers")
		at := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Min(1))
		m := Message{Headers: maps.Clone(own), DeliverAt: at.Draw(t, "deliver"), ExpiresAt: at.Draw(t, "expires")}
		var back Message
		if err := back.SetStoredHeaders(maps.Clone(m.StoredHeaders())); err != nil {
			t.Fatal(err)
		}
		if back.DeliverAt != m.DeliverAt || back.ExpiresAt != m.ExpiresAt || !maps.Equal(back.Headers, own) || !maps.Equal(m.Headers, own) {
			t.Fatalf("%+v came back as %+v", m, back)
		}
	})
	if err := new(Message).SetStoredHeaders(map[string]string{HeaderDeliverAt: "soon"}); err == nil {
		t.Error("a time that is no number is read")
	}
}
