package postgres

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

func FuzzPidFile(f *testing.F) {
	f.Add([]byte("4242\n/var/lib/data\n1700000000\n5432\n/tmp/s\n\n  5432001 0\nready\n"))
	f.Add([]byte("-17\n/d\n"))
	f.Add([]byte("99999999999999999999999\n\n\n\n\n"))
	f.Add([]byte("4242"))
	f.Add([]byte(""))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, "postmaster.pid"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := readPidFile(dir)
		if err != nil {
			t.Fatalf("%q was parsed as %+v, %v", text, p, err)
		}
		if strings.ContainsRune(p.port+p.socketDir, '\n') || p.socketDir != "" && strings.Count(string(text), "\n") < 4 {
			t.Errorf("%q was parsed as %+v", text, p)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		if want, err := strconv.Atoi(strings.TrimSpace(first)); err != nil && p.pid != 0 || err == nil && p.pid != want {
			t.Errorf("%q was parsed with the process %d", text, p.pid)
		}
	})
}

func FuzzParseVersion(f *testing.F) {
	f.Add("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n")
	f.Add("postgres (PostgreSQL) 18beta1")
	f.Add("postgres (PostgreSQL) ")
	f.Add("postgres (PostgreSQL) 99999999999999999999.1")
	f.Add("postgres (EnterpriseDB) 15.1")
	f.Fuzz(func(t *testing.T, s string) {
		version, major := parseVersion(s)
		if major != 0 &&
			(!strings.HasPrefix(strings.TrimLeft(version, "0"), strconv.Itoa(major)) || !strings.Contains(s, version)) {
			t.Errorf("%q was parsed as %q, %d", s, version, major)
		}
	})
}

func FuzzExplain(f *testing.F) {
	f.Add("FATAL:  could not write lock file \"postmaster.pid\": No space left on device\n")
	f.Add("FATAL:  data directory \"/x\" has invalid permissions\nDETAIL:  Permissions should be u=rwx (0700)")
	f.Add(strings.Repeat("LOG: x\n", 100))
	f.Add("\xff\x00")
	f.Fuzz(func(t *testing.T, output string) {
		e := explain(output)
		if e.Text == "" || strings.Contains(e.Text+e.Hint, "\n") || strings.Count(e.Detail, "\n") >= detailLines {
			t.Errorf("%q is explained by %+v", output, e)
		}
		if !strings.Contains(output, e.Detail) || !strings.HasPrefix(e.Error(), e.Text) {
			t.Errorf("%q is explained by %q", output, e)
		}
	})
}

func FuzzAddress(f *testing.F) {
	f.Add("/tmp/s", "5432", "cuelight")
	f.Add("/a b/ü+%20&host=x", "1", "a/b?c=d#e")
	f.Add("/x", "65535", "'; drop")
	f.Fuzz(func(t *testing.T, socketDir, port, database string) {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || strconv.FormatUint(n, 10) != port || database == "" || !filepath.IsAbs(socketDir) {
			return
		}
		// A comma begins another host; see socketDir, which avoids it.
		if strings.ContainsAny(socketDir, ",\x00") || strings.ContainsRune(database, 0) ||
			!utf8.ValidString(socketDir+database) {
			return
		}
		config, err := pgx.ParseConfig(Address(socketDir, port, database))
		if err != nil {
			t.Fatalf("%q, %q, %q: %v", socketDir, port, database, err)
		}
		if config.Host != socketDir || config.Port != uint16(n) || config.Database != database ||
			config.User != Superuser || config.TLSConfig != nil {
			t.Errorf("%q, %q, %q became %q, %d, %q", socketDir, port, database, config.Host, config.Port, config.Database)
		}
	})
}
