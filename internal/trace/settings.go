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
	prefix         = "OTEL_EXPORTER_OTLP_"
	tracesPrefix   = prefix + "TRACES_"
	defaultTimeout = 10 * time.Second
)

// settings say where to send spans, and how.
type settings struct {
	endpoint *url.URL
	header   http.Header
	timeout  time.Duration // of one request
	gzip     bool
	tls      *tls.Config // nil for the default
}

// environment returns the value of a variable.
type environment func(name string) string

// get is the value of a variable without surrounding space.
func (env environment) get(name string) string { return strings.TrimSpace(env(name)) }

// otlp is the value of a setting of the exporter and the variable that has it. Variables for
// traces alone have precedence.
func (env environment) otlp(name string) (value, variable string) {
	for _, variable := range []string{tracesPrefix + name, prefix + name} {
		if value := env.get(variable); value != "" {
			return value, variable
		}
	}
	return "", prefix + name
}

// readSettings reads the environment and reports whether tracing is on.
func readSettings(env environment) (s settings, on bool, err error) {
	endpoint, variable := env.otlp("ENDPOINT")
	if endpoint == "" || strings.EqualFold(env.get("OTEL_SDK_DISABLED"), "true") {
		return s, false, nil
	}
	switch exporter := env.get("OTEL_TRACES_EXPORTER"); exporter {
	case "", "otlp":
	case "none":
		return s, false, nil
	default:
		return s, false, fmt.Errorf("OTEL_TRACES_EXPORTER: unsupported exporter %q; allowed: otlp, none", exporter)
	}
	if err := env.checkSampler(); err != nil {
		return s, false, err
	}
	if protocol, variable := env.otlp("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return s, false,
			fmt.Errorf("%s: unsupported protocol %q; use http/protobuf (port 4318 by convention)", variable, protocol)
	}
	if s.endpoint, err = parseEndpoint(endpoint, variable == prefix+"ENDPOINT"); err != nil {
		return s, false, fmt.Errorf("%s: %w", variable, err)
	}
	return s, true, errors.Join(s.readHeaders(env), s.readTimeout(env), s.readCompression(env), s.readTLS(env))
}

// parseEndpoint parses an address. It adds the path for traces to the address of a collector.
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
	text, variable := env.otlp("HEADERS")
	s.header = make(http.Header)
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || name == "" || strings.ContainsFunc(name, isInvalidInName) ||
			strings.ContainsFunc(value, unicode.IsControl) {
			return fmt.Errorf("%s: it must be a list of name=value, separated by commas, with URL-encoded values", variable)
		}
		s.header.Set(name, value)
	}
	return nil
}

// isInvalidInName reports whether the name of a header cannot contain a character.
func isInvalidInName(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

func (s *settings) readTimeout(env environment) error {
	s.timeout = defaultTimeout
	text, variable := env.otlp("TIMEOUT")
	if text == "" {
		return nil
	}
	ms, err := strconv.ParseInt(text, 10, 32)
	if err != nil || ms <= 0 {
		return fmt.Errorf("%s: %q is not a number of milliseconds", variable, text)
	}
	s.timeout = time.Duration(ms) * time.Millisecond
	return nil
}

func (s *settings) readCompression(env environment) error {
	switch text, variable := env.otlp("COMPRESSION"); text {
	case "", "none":
	case "gzip":
		s.gzip = true
	default:
		return fmt.Errorf("%s: unsupported compression %q; allowed: gzip, none", variable, text)
	}
	return nil
}

func (s *settings) readTLS(env environment) error {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file, variable := env.otlp("CERTIFICATE"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w", variable, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("%s: %s contains no certificate", variable, file)
		}
		s.tls = config
	}
	cert, variable := env.otlp("CLIENT_CERTIFICATE")
	key, _ := env.otlp("CLIENT_KEY")
	if cert == "" && key == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s: %w", variable, err)
	}
	config.Certificates = []tls.Certificate{pair}
	s.tls = config
	return nil
}

// samplers are the samplers of the SDK, which would print an error about others and use its
// default.
var samplers = []string{
	"", "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off",
	"parentbased_traceidratio",
}

func (env environment) checkSampler() error {
	sampler := strings.ToLower(env.get("OTEL_TRACES_SAMPLER"))
	if !slices.Contains(samplers, sampler) {
		return fmt.Errorf("OTEL_TRACES_SAMPLER: unknown sampler %q; allowed: %s", sampler, strings.Join(samplers[1:], ", "))
	}
	arg := env.get("OTEL_TRACES_SAMPLER_ARG")
	if !strings.HasSuffix(sampler, "traceidratio") || arg == "" {
		return nil
	}
	if ratio, err := strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
		return fmt.Errorf("OTEL_TRACES_SAMPLER_ARG: %q is not a number from 0 to 1", arg)
	}
	return nil
}
