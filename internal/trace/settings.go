package trace

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	prefix        = "OTEL_EXPORTER_OTLP_"
	tracesPrefix  = prefix + "TRACES_"
	sendingWithin = 10 * time.Second
)

// settings are where to send spans to, and how.
type settings struct {
	endpoint *url.URL
	header   http.Header
	timeout  time.Duration // of one request
	gzip     bool
	tls      *tls.Config // nil for the usual
}

// environment looks variables up.
type environment func(name string) string

// get is a variable's value without the spaces around it.
func (env environment) get(name string) string { return strings.TrimSpace(env(name)) }

// otlp is the value of one of the exporter's, and the name it was found under:
// what is meant for traces alone comes first.
func (env environment) otlp(name string) (value, where string) {
	for _, where := range []string{tracesPrefix + name, prefix + name} {
		if value := env.get(where); value != "" {
			return value, where
		}
	}
	return "", prefix + name
}

// settingsOf reads the environment, and reports whether anything is to be traced
// at all.
func settingsOf(env environment) (s settings, on bool, err error) {
	endpoint, where := env.otlp("ENDPOINT")
	if endpoint == "" || strings.EqualFold(env.get("OTEL_SDK_DISABLED"), "true") {
		return s, false, nil
	}
	switch exporter := env.get("OTEL_TRACES_EXPORTER"); exporter {
	case "", "otlp":
	case "none":
		return s, false, nil
	default:
		return s, false, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is neither otlp nor none", exporter)
	}
	if err := env.checkSampler(); err != nil {
		return s, false, err
	}
	if protocol, where := env.otlp("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return s, false, fmt.Errorf("%s: %q: only http/protobuf is spoken here, by convention at port 4318", where, protocol)
	}
	if s.endpoint, err = parseEndpoint(endpoint, where == prefix+"ENDPOINT"); err != nil {
		return s, false, fmt.Errorf("%s: %w", where, err)
	}
	return s, true, errors.Join(s.readHeaders(env), s.readTimeout(env), s.readCompression(env), s.readTLS(env))
}

// parseEndpoint reads an address; to one that is meant for everything that is
// sent, the path for traces is added.
func parseEndpoint(text string, base bool) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("it is no address that begins with http:// or https:// and a host")
	}
	if base {
		u = u.JoinPath("v1", "traces")
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return u, nil
}

func (s *settings) readHeaders(env environment) error {
	text, where := env.otlp("HEADERS")
	s.header = make(http.Header)
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || name == "" || strings.ContainsFunc(name, notInName) || strings.ContainsFunc(value, unicode.IsControl) {
			return fmt.Errorf("%s: it is no list of name=value, separated by commas, with values as in a URL", where)
		}
		s.header.Set(name, value)
	}
	return nil
}

// notInName reports what a header's name cannot have in it.
func notInName(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

func (s *settings) readTimeout(env environment) error {
	s.timeout = sendingWithin
	text, where := env.otlp("TIMEOUT")
	if text == "" {
		return nil
	}
	ms, err := strconv.ParseInt(text, 10, 32)
	if err != nil || ms <= 0 {
		return fmt.Errorf("%s: %q is no number of milliseconds", where, text)
	}
	s.timeout = time.Duration(ms) * time.Millisecond
	return nil
}

func (s *settings) readCompression(env environment) error {
	switch text, where := env.otlp("COMPRESSION"); text {
	case "", "none":
	case "gzip":
		s.gzip = true
	default:
		return fmt.Errorf("%s: %q is neither gzip nor none", where, text)
	}
	return nil
}

func (s *settings) readTLS(env environment) error {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file, where := env.otlp("CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("%s: there is no certificate in %s", where, file)
		}
		s.tls = config
	}
	cert, where := env.otlp("CLIENT_CERTIFICATE")
	key, _ := env.otlp("CLIENT_KEY")
	if cert == "" && key == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	config.Certificates = []tls.Certificate{pair}
	s.tls = config
	return nil
}

// samplers are those the SDK knows. Of others it would complain in a way of its
// own and go on with the default.
var samplers = []string{
	"", "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio",
}

func (env environment) checkSampler() error {
	sampler := strings.ToLower(env.get("OTEL_TRACES_SAMPLER"))
	if !slices.Contains(samplers, sampler) {
		return fmt.Errorf("OTEL_TRACES_SAMPLER: %q is none of %s", sampler, strings.Join(samplers[1:], ", "))
	}
	arg := env.get("OTEL_TRACES_SAMPLER_ARG")
	if !strings.HasSuffix(sampler, "traceidratio") || arg == "" {
		return nil
	}
	if ratio, err := strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
		return fmt.Errorf("OTEL_TRACES_SAMPLER_ARG: %q is no number from 0 to 1", arg)
	}
	return nil
}
