package main

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// secret is what must not be shown, whatever stands around it.
const secret = "zTk7Qw9xSecretL2"

func FuzzPasswordsOfDatabasesAreNotShown(f *testing.F) {
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
			"postgres://" + url.PathEscape(user) + ":" + url.PathEscape(password) + "@" + host + "/" + url.PathEscape(name) + "?" + query,
			"postgres://" + user + ":" + password + "@" + host + "/" + name + "?" + query,
			"postgres://" + host + "/" + name + "?" + query + "&password=" + url.QueryEscape(password),
			"host=" + quoted(host) + " user=" + quoted(user) + " dbname=" + quoted(name) + " password=" + quoted(password),
			"user=" + user + " password=" + password,
		} {
			config, err := choice{address: address, why: "--database-url"}.config()
			if err != nil {
				checkUsage(t, err)
				if p := explain(err); strings.Contains(p.text+p.hint, secret) {
					t.Errorf("%q: the answer is %q, %q", address, p.text, p.hint)
				}
				continue
			}
			// What was not understood as the password was not one.
			if cc := config.ConnConfig; strings.Contains(cc.Password, secret) {
				if got := masked(config); strings.Contains(got, secret) && !strings.Contains(cc.Host+cc.User+cc.Database, secret) {
					t.Errorf("%q is shown as %s", address, got)
				}
			}
		}
	})
}

func FuzzSourceOf(f *testing.F) {
	f.Add("holiday.mp4", "/home/me")
	f.Add("./a/../b", "/")
	f.Add("/a\xffb?c#d%20", "/x")
	f.Add("http://h/\xff?a=\xfe", "/x")
	f.Add("a://b", "/x")
	f.Add("1a://b", "/x\xff")
	f.Add("", "/")
	f.Fuzz(func(t *testing.T, arg, dir string) {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			return // it comes from Getwd
		}
		source, err := sourceOf(arg, dir)
		if err != nil {
			checkUsage(t, err)
			return
		}
		if !utf8.ValidString(source) {
			t.Fatalf("%q is %q", arg, source)
		}
		if isURL(arg) {
			if !isURL(source) || utf8.ValidString(arg) && source != arg {
				t.Errorf("%q is %q", arg, source)
			}
			return
		}
		want := arg
		if !filepath.IsAbs(arg) {
			want = strings.TrimSuffix(dir, "/") + "/" + strings.TrimPrefix(arg, "./")
		}
		if filepath.IsAbs(source) {
			if source != want {
				t.Errorf("%q in %q is %q", arg, dir, source)
			}
			return
		}
		u, err := url.Parse(source)
		if err != nil || u.Scheme != "file" || u.Host != "" || u.RawQuery != "" || u.Fragment != "" || u.Path != want {
			t.Errorf("%q in %q is %q, which is %+v, %v", arg, dir, source, u, err)
		}
	})
}
