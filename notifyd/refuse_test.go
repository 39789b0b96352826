package notifyd_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// What is no call is told why, in the form of any other error of the API.
func TestWhatIsNoCallIsToldWhy(t *testing.T) {
	s := newStage(t)
	addr, _ := s.broker(nil)
	const publish = "/notify.v1.Messaging/Publish"
	for name, c := range map[string]struct {
		method, path, kind string
		status             int
		says               string
	}{
		"a browser":       {http.MethodGet, "/", "", http.StatusMethodNotAllowed, "GET is not a call: use POST"},
		"another method":  {http.MethodPut, publish, "application/json", http.StatusMethodNotAllowed, "PUT is not a call"},
		"a form":          {http.MethodPost, publish, "application/x-www-form-urlencoded", http.StatusUnsupportedMediaType, `Content-Type "application/x-www-form-urlencoded": use application/json`},
		"no content type": {http.MethodPost, publish, "", http.StatusUnsupportedMediaType, `Content-Type "": use application/json`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+addr+c.path, strings.NewReader("topic=t"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", c.kind)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var body struct{ Code, Message string }
		err = json.NewDecoder(res.Body).Decode(&body)
		res.Body.Close()
		if err != nil || res.StatusCode != c.status || body.Code != "unimplemented" || !strings.Contains(body.Message, c.says) {
			t.Errorf("%s: status %d, %+v, %v; want %d and %q", name, res.StatusCode, body, err, c.status, c.says)
		}
	}
	for _, kind := range []string{"application/json", "application/json; charset=utf-8"} {
		res, err := http.Post("http://"+addr+"/notify.v1.Messaging/ListBrokers", kind, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d", kind, res.StatusCode)
		}
	}
}
