package dbconn

import (
	"net/url"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/usererr"
)

// secret must not be printed in any context.
const secret = "zTk7Qw9xSecretL2"

func FuzzRedactedURL(f *testing.F) {
	f.Add("me", "", "", "db.example:5433", "work", "sslmode=require")
	f.Add("", "p%2F", "@:?#", "[::1]", "", "application_name=a%20b")
	f.Add("m@e", "'", "\\", "a,b:1,c", "a/b", "options=-c%20x=1")
	f.Add("me", " ", "\x00", "", "w", "host=/tmp/x")
	f.Fuzz(func(t *testing.T, user, before, after, host, name, query string) {
		password := before + secret + after
		quoted := func(s string) string {
			return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
		}
		for _, address := range []string{
			"postgres://" + url.PathEscape(user) + ":" + url.PathEscape(password) + "@" + host +
				"/" + url.PathEscape(name) + "?" + query,
			"postgres://" + user + ":" + password + "@" + host + "/" + name + "?" + query,
			"postgres://" + host + "/" + name + "?" + query + "&password=" + url.QueryEscape(password),
			"host=" + quoted(host) + " user=" + quoted(user) + " dbname=" + quoted(name) + " password=" + quoted(password),
			"user=" + user + " password=" + password,
		} {
			config, err := Target{Address: address, Origin: "--database-url"}.config()
			if err != nil {
				if p := Explain(err); p.Kind != usererr.Usage || strings.Contains(p.Text+p.Hint, secret) {
					t.Errorf("%q: the error is %+v", address, p)
				}
				continue
			}
			// Only text that is parsed as the password must be hidden.
			if cc := config.ConnConfig; strings.Contains(cc.Password, secret) {
				if got := redactedURL(config); strings.Contains(got, secret) &&
					!strings.Contains(cc.Host+cc.User+cc.Database, secret) {
					t.Errorf("%q is shown as %s", address, got)
				}
			}
		}
	})
}
