package trace

import (
	"strings"
	"testing"
	"time"
)

// vars is an environment.
func vars(pairs ...string) environment {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestReadSettings_IsOffByDefault(t *testing.T) {
	t.Parallel()
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for _, tt := range []struct {
		name string
		env  environment
		on   bool
	}{
		{"nothing", vars(), false},
		{"blank", vars(endpoint, " "), false},
		{"an endpoint", vars(endpoint, "http://collector:4318"), true},
		{"one for traces", vars("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://collector:4318/v1/traces"), true},
		{"one for metrics", vars("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://collector:4318"), false},
		{"disabled", vars(endpoint, "http://collector:4318", "OTEL_SDK_DISABLED", "True"), false},
		{"no exporter", vars(endpoint, "http://collector:4318", "OTEL_TRACES_EXPORTER", "none"), false},
		{"nothing but a name", vars("OTEL_SERVICE_NAME", "x", "OTEL_TRACES_SAMPLER", "nonsense"), false},
	} {
		if _, on, err := readSettings(tt.env); on != tt.on || err != nil {
			t.Errorf("%s: on is %v, %v; want %v", tt.name, on, err, tt.on)
		}
	}
}

func TestReadSettings_PrefersSettingsForTraces(t *testing.T) {
	t.Parallel()
	s, _, err := readSettings(vars(
		"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318/base/", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces",
		"OTEL_EXPORTER_OTLP_HEADERS", "a=1", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "Authorization=Basic%20eA==, x-b = 2 ,",
		"OTEL_EXPORTER_OTLP_TIMEOUT", "1000", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2500",
		"OTEL_EXPORTER_OTLP_COMPRESSION", "none", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf",
	))
	if err != nil {
		t.Fatal(err)
	}
	if s.endpoint.String() != "https://traces/" || s.timeout != 2500*time.Millisecond || !s.gzip ||
		len(s.header) != 2 || s.header.Get("Authorization") != "Basic eA==" || s.header.Get("X-B") != "2" {
		t.Errorf("got %+v to %s", s, s.endpoint)
	}
	s, _, err = readSettings(vars("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318/base/"))
	if err != nil || s.endpoint.String() != "http://all:4318/base/v1/traces" || s.timeout != 10*time.Second || s.gzip {
		t.Errorf("got %+v to %s, %v", s, s.endpoint, err)
	}
}

func TestReadSettings_NamesAnInvalidVariableWithoutItsValue(t *testing.T) {
	t.Parallel()
	missing := t.TempDir() + "/none"
	for _, tt := range [][2]string{
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://user:hush@host"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://hush@ho st"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "hush"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a b=hush"},
		{"OTEL_EXPORTER_OTLP_HEADERS", "=hush"},
		{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=%zzhush"},
		{"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=%0d%0aInjected: hush"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "0"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", missing},
		{"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", missing},
		{"OTEL_TRACES_EXPORTER", "zipkin"},
		{"OTEL_TRACES_SAMPLER", "sometimes"},
	} {
		// The first of a name counts.
		_, _, err := readSettings(vars(tt[0], tt[1], "OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector"))
		if err == nil || !strings.Contains(err.Error(), tt[0]) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s=%s: got %v", tt[0], tt[1], err)
		}
	}
	for _, arg := range []string{"often", "-1", "1.1", "NaN"} {
		_, _, err := readSettings(vars("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c",
			"OTEL_TRACES_SAMPLER", "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG", arg))
		if err == nil || !strings.Contains(err.Error(), "OTEL_TRACES_SAMPLER_ARG") {
			t.Errorf("ratio %s: got %v", arg, err)
		}
	}
}
