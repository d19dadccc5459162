package storage_test

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/storage/s3test"
)

// checkText checks an error of the service and its text.
func checkText(t *testing.T, name string, err error, kind storage.Kind, text, hint string) {
	t.Helper()
	checkKind(t, name, err, kind, hint)
	if e, ok := errors.AsType[*storage.ServiceError](err); ok && !strings.Contains(e.Text, text) {
		t.Errorf("%s: %q; want %q", name, e.Text, text)
	}
}

// firstErrors are those of the first request to an endpoint, which may be one of several.
func firstErrors(t *testing.T, endpoint string) map[string]error {
	t.Helper()
	env := with(keys, "AWS_ENDPOINT_URL", endpoint)
	_, listErr := open(t, "s3://videos", env, storage.Options{Tries: 1}).ListArtifacts(t.Context(), "")
	_, _, readErr := open(t, "s3://videos", env, storage.Options{Tries: 1}).ReadDocument(t.Context(), "document")
	_, writeErr := open(t, "s3://videos", env, storage.Options{Tries: 1}).WriteDocument(t.Context(), "document", nil, "")
	return map[string]error{"list": listErr, "read": readErr, "write": writeErr}
}

func TestErrors_NameTheSchemeThatTheServiceSpeaks(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	plain, encrypted := httptest.NewServer(answer), httptest.NewUnstartedServer(answer)
	encrypted.Config.ErrorLog = log.New(io.Discard, "", 0) // it logs handshakes that fail
	encrypted.StartTLS()
	redirecting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://127.0.0.1"+r.URL.Path, http.StatusMovedPermanently)
	}))
	defer plain.Close()
	defer encrypted.Close()
	defer redirecting.Close()
	strict := s3test.Start(t, s3test.Options{TLS: true}) // it cuts the connection, and Go's server answers
	for endpoint, spoken := range map[string]string{
		"https" + strings.TrimPrefix(plain.URL, "http"):     "speaks http, not https",
		"http" + strings.TrimPrefix(encrypted.URL, "https"): "speaks https, not http",
		"http://" + strict.Host():                           "speaks https, not http",
		redirecting.URL:                                     "speaks https, not http",
	} {
		for operation, err := range firstErrors(t, endpoint) {
			checkText(t, endpoint+" "+operation, err, storage.Unsuitable, spoken, "AWS_ENDPOINT_URL")
		}
	}
}

func TestErrors_OfAWebServerSayThatItIsNoS3Service(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]struct {
		status            int
		contentType, body string
	}{
		"a Cuelight":    {http.StatusUnauthorized, "application/problem+json", `{"title":"Authentication required"}`},
		"no page":       {http.StatusNotFound, "text/html", "<!DOCTYPE html><h1>Not Found</h1>"},
		"forbidden":     {http.StatusForbidden, "text/html", "<html>Forbidden</html>"},
		"always a page": {http.StatusOK, "text/html; charset=utf-8", "<!DOCTYPE html><div id=app></div>"},
		"a login":       {http.StatusFound, "text/html", "<a href='/login'>Found</a>"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", answer.contentType)
			w.Header().Set("Location", "/login")
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.body)
		}))
		for operation, err := range firstErrors(t, server.URL) {
			checkText(t, name+" "+operation, err, storage.Unsuitable, "is not an S3 service", "AWS_ENDPOINT_URL")
		}
		server.Close()
	}
}

func TestErrors_OfAProxyAreNotThoseOfAWebServerOnceTheServiceHasAnswered(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	target, err := url.Parse(s.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	refuses := false
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuses {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "<html>not now</html>")
			return
		}
		request := r.Clone(r.Context())
		request.URL.Scheme, request.URL.Host, request.RequestURI = target.Scheme, target.Host, ""
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		for name, values := range response.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(response.StatusCode)
		_, _ = io.Copy(w, response.Body)
	}))
	defer proxy.Close()
	b := open(t, "s3://"+bucketName, with(s.Env(), "AWS_ENDPOINT_URL", proxy.URL), storage.Options{Tries: 1})
	if _, err := b.ListArtifacts(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	refuses = true
	_, err = b.ListArtifacts(t.Context(), "")
	checkText(t, "proxy", err, storage.Denied, "not allowed", "docs/storage.md")
}

func TestErrors_OfAServiceThatCutsEveryConnectionAreNotThoseOfTheScheme(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	_, err = open(t, "s3://videos", with(keys, "AWS_ENDPOINT_URL", "http://"+listener.Addr().String()), storage.Options{Tries: 1}).
		ListArtifacts(t.Context(), "")
	checkText(t, "cut", err, storage.Cut, "was cut", "network")
}

func TestOpen_SaysWhichPartOfTheCredentialsIsMissing(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "credentials")
	broken := filepath.Join(t.TempDir(), "broken")
	text := "[default]\naws_access_key_id = a\naws_secret_access_key = b\n[half]\naws_access_key_id = a\n" +
		"[other-half]\naws_secret_access_key = b\n[empty]\n"
	for name, content := range map[string]string{file: text, broken: "secret [\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set := func(variables ...string) environment {
		env := environment(func(string) string { return "" })
		for i := 0; i < len(variables); i += 2 {
			env = with(env, variables[i], variables[i+1])
		}
		return env
	}
	fileOf := func(profile string) environment {
		return set("AWS_SHARED_CREDENTIALS_FILE", file, "AWS_PROFILE", profile)
	}
	for _, test := range []struct {
		options string
		env     environment
		text    string
		hint    string
	}{
		{"", fileOf("other"), `the profile "other" is not in ` + file, "AWS_PROFILE"},
		{"?credentials=" + file + "&profile=other", keys, `the profile "other" is not in ` + file, "options profile"},
		{"", fileOf("half"), `the profile "half" in ` + file + " has only one of aws_access_key_id", "both"},
		{"", fileOf("other-half"), `the profile "other-half" in ` + file + " has only one of aws_access_key_id", "both"},
		{"", fileOf("empty"), `the profile "empty" in ` + file + " has no keys", "aws_secret_access_key"},
		{"?credentials=/nowhere", keys, "file /nowhere cannot be read: no such file", "AWS_SHARED_CREDENTIALS_FILE"},
		{"?credentials=" + broken, keys, `"default" in ` + broken + " cannot be used", "syntax"},
		{"", with(fileOf(""), "AWS_ACCESS_KEY_ID", "a"), "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not", "both"},
		{"", set("AWS_SECRET_ACCESS_KEY", "a"), "AWS_SECRET_ACCESS_KEY is set, but AWS_ACCESS_KEY_ID is not", "both"},
	} {
		a, err := storage.ParseAddress("s3://videos"+test.options, test.env)
		if err != nil {
			t.Fatal(err)
		}
		_, err = storage.Open(a, storage.Options{})
		checkText(t, test.text, err, storage.Credentials, test.text, test.hint)
	}
}

func TestCredentials_OfAFileThatBecameInvalidAreAProblemOfTheService(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "credentials")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "<Error><Code>InvalidAccessKeyId</Code></Error>")
	}))
	defer server.Close()
	b := open(t, "s3://videos?credentials="+file+"&endpoint="+server.URL, keys, storage.Options{Tries: 1})
	_, err := b.ListArtifacts(t.Context(), "")
	checkText(t, "refused", err, storage.Credentials, "does not accept", "credentials file")
	write("[default]\naws_access_key_id = a\n")
	_, err = b.ListArtifacts(t.Context(), "")
	checkText(t, "half", err, storage.Credentials, "has only one", "both")
}
