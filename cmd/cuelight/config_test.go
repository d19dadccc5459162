package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
)

// writeConfig writes a configuration file that only its owner can read.
func writeConfig(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// settingsFor returns the settings of a command line by their names.
func settingsFor(t *testing.T, env dbconn.Environment, args ...string) map[string]setting {
	t.Helper()
	cmd, err := scratchCLI(env).prepare(args)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]setting)
	for _, s := range settingsOf(cmd) {
		all[s.Name] = s
	}
	return all
}

func TestSettings_FlagPrecedesVariablePrecedesSectionPrecedesFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cuelight.yaml")
	writeConfig(t, path, "crf: 20\nnice: 1\nthreads: 2\npreset: fast\nserve:\n  crf: 21\n  nice: 2\n  threads: 3\nwork:\n  crf: 22\n")
	env := dbconn.Environment{"CUELIGHT_CONFIG=" + path, "CUELIGHT_NICE=3", "CUELIGHT_THREADS=4"}
	got := settingsFor(t, env, "serve", "--threads", "5")
	for _, want := range []setting{
		{"threads", "5", "--threads"},
		{"nice", "3", "CUELIGHT_NICE"},
		{"crf", "21", path + ":6"},
		{"preset", "fast", path + ":4"},
		{"stall", "2m0s", "default"},
	} {
		if got[want.Name] != want {
			t.Errorf("got %+v, want %+v", got[want.Name], want)
		}
	}
	if got := settingsFor(t, env, "run", "x")["crf"]; got.Value != "20" {
		t.Errorf("run has %+v, want the value outside of sections", got)
	}
}

func TestConfig_ReadsValuesOfEveryType(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cuelight.yaml")
	writeConfig(t, path, `
data-dir: /srv/a:b
watch: [/tmp, /]
allow-network: [10.0.0.0/8, 192.0.2.1]
label: gpu,north
encoders: [h264_vaapi, libx264]
insecure: true
listen: 127.0.0.1:0
max-download: 1500M
keep-old: 90m
time-factor: 2.5
chunk: never
serve:
  slots: {transcode: 2, ingest: 1}
work:
  slots: 3
`)
	got := settingsFor(t, dbconn.Environment{"CUELIGHT_CONFIG=" + path}, "serve")
	for name, want := range map[string]string{
		"data-dir": "/srv/a:b", "watch": "/tmp,/", "allow-network": "10.0.0.0/8,192.0.2.1/32", "label": "gpu,north",
		"encoders": "h264_vaapi,libx264", "insecure": "true", "max-download": "1500MiB", "keep-old": "1h30m0s",
		"time-factor": "2.5", "chunk": "never", "slots": "ingest=1,transcode=2",
	} {
		if got[name].Value != want {
			t.Errorf("%s is %q, want %q", name, got[name].Value, want)
		}
	}
	if got := settingsFor(t, nil, "work", "--config", path)["slots"].Value; got != "3" {
		t.Errorf("the slots of work are %s", got)
	}
}

func TestConfig_NamesEveryMistakeWithItsLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"datadir: x":                        ":1: unknown setting datadir; did you mean data-dir?",
		"bogus: x":                          ":1: unknown setting bogus; cuelight config example prints all",
		"config: x":                         ":1: unknown setting config",
		"json: true":                        ":1: unknown setting json",
		"serve:\n  lisen: x":                ":2: unknown setting lisen in the section serve; did you mean listen?",
		"work:\n  watch: /x":                ":2: unknown setting watch in the section work; cuelight work has no such flag",
		"work:\n  database-url: private":    ":2: unknown setting database-url in the section work",
		"slots: {transcode: 1}":             ":1: slots differs between commands: set it in their sections; allowed: run, serve, work",
		"crf: high":                         ":1: crf high: it must be an integer",
		"insecure: yes":                     ":1: insecure yes: it must be true or false",
		"\ngrace: 90":                       ":2: grace 90: it must be a duration such as 90s, 10m or 1h30m",
		"grace:":                            ":1: grace has no value: write one, or remove the line for the default",
		"data-dir: ''":                      ":1: data-dir has no value",
		"crf: [1]":                          ":1: crf: it must be a single value",
		"crf: {a: 1}":                       ":1: crf: it must be a single value",
		"watch:\n- /a\n- [b]":               ":3: watch: it must be a list of single values",
		"allow-network:\n- ::1\n- nonsense": ":3: allow-network nonsense: it must be a network",
		"serve:\n  slots: {transcode: x}":   ":2: slots transcode=x: it must be STAGE=NUMBER",
		"crf: 1\nnice: 1\ncrf: 2":           ":3: crf is set in line 1, too",
		"serve: 1":                          ":1: it must be lines with NAME: VALUE",
		"- crf":                             ":1: it must be lines with NAME: VALUE",
		"? [a]\n: b":                        ":1: it must be lines with NAME: VALUE",
		"<<: {crf: 20}":                     ":1: unknown setting <<",
		"crf: 20\n---\ncrf: 21":             ":2: a second document begins",
		"crf: 20\n nice: 1":                 ": it is not YAML: near line 2",
		"crf: *x":                           ": it is not YAML: unknown anchor",
		// These are found when all settings are known.
		"crf: 99":                                 ":1: crf 99: it must be 1 to 51",
		"serve:\n  slots: {transcode: 2000}":      ":2: slots transcode=2000: it must be 0 to 1000",
		"watch: [/nowhere]":                       ":1: watch /nowhere: no such file or directory",
		"listen: 127.0.0.1:0\ntls-cert: /nowhere": ":2: tls-cert and tls-key require each other",
		"max-submissions-per-user: 5":             ":1: max-submissions-per-user: without listen ",
		"read-max-lag: 5s":                        ":1: read-max-lag: without listen ",
		"read-database-url: host=h":               ":1: read-database-url: without listen ",
		"log-level: debug":                        ":1: log-level debug: it must be info, warn or error",
		"listen: 192.0.2.1:80\n":                  ":1: listen",
		"media-user: root":                        ":1: media-user root: it must be a user other than root",
		"encoders: [h265]":                        ":1: encoders: ",
		"data-dir: &a /tmp/x\npublish-dir: *a\n":  "",
		"---\n# only a comment\n":                 "",
		"":                                        "",
		"serve:\n  watch: /tmp\n  public-url: https://studio.example\n  listen: 127.0.0.1:1\n": "",
	} {
		path := filepath.Join(t.TempDir(), "cuelight.yaml")
		writeConfig(t, path, text)
		_, err := scratchCLI(nil).prepare([]string{"serve", "--config", path})
		switch {
		case want == "" && err != nil:
			t.Errorf("%q is refused: %v", text, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), path+want)):
			t.Errorf("%q: the error is %v, want %s", text, err, want)
		}
	}
}

func TestConfigCheck_ReportsEveryWrongValue(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cuelight.yaml")
	for _, c := range []struct {
		text string
		want []string // begin the lines
	}{
		{
			"serve:\n  nice: 55\n  crf: 99\n  lease: 1s\n  slots: {transcode: 2000}\n  encoders: [h265]\n  settle: 0s\n" +
				"  watch: [/nowhere, /none]\n  max-upload: 0\n  base-path: x\n  listen: nonsense\n  log-level: debug\n",
			[]string{
				":7: settle", ":12: log-level", ":8: watch /nowhere", "it must be a directory", ":8: watch /none",
				":9: max-upload", ":10: base-path", ":11: listen", ":3: crf 99", ":2: nice 55", ":4: lease 1s", ":6: encoders", ":5: slots",
			},
		},
		{"crf: 99\nwork: {slots: 0, server: x}\n", []string{":1: crf 99", ":2: server x", ":2: slots 0"}},
		{"database-url: 'postgres://[x'", []string{"invalid database address (:1)", "such as postgres://"}},
		{"database-url: private\nserve: {listen: '127.0.0.1:1', read-database-url: nonsense}\nnotify-url: '::'", []string{
			":3: invalid database address (notify-url", "such as postgres://", ":2: invalid database address (read-database-url",
		}},
	} {
		writeConfig(t, path, c.text)
		scratch := scratchCLI(nil)
		scratch.configPath = path
		e, ok := scratch.checkConfig().(*usererr.Error)
		if !ok || e.Kind != usererr.Usage {
			t.Errorf("%q: no errors, or %v", c.text, e)
			continue
		}
		lines := strings.Split(e.Text+"\n"+e.Hint, "\n")
		if !slices.EqualFunc(lines, c.want, func(line, want string) bool {
			return strings.HasPrefix(strings.ReplaceAll(line, path, ""), want)
		}) {
			t.Errorf("%q: it prints\n%s", c.text, strings.Join(lines, "\n"))
		}
	}
}

func TestConfig_ReportsAllMistakesInOrder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cuelight.yaml")
	writeConfig(t, path, "bogus: 1\ncrf: x\nbogus: 2\n")
	_, err := loadConfig(path, nil)
	e, ok := err.(*usererr.Error)
	if !ok || e.Kind != usererr.Usage || !strings.Contains(e.Text, ":1: unknown setting bogus") ||
		!strings.HasPrefix(e.Hint, path+":2: crf x") || !strings.Contains(e.Hint, "\n"+path+":3: bogus is set in line 1") {
		t.Errorf("the error is %#v", err)
	}
}

func TestConfig_MustExistIfItIsNamed(t *testing.T) {
	t.Parallel()
	for _, env := range []dbconn.Environment{{"CUELIGHT_CONFIG=/nowhere"}, {}} {
		args := []string{"serve"}
		if len(env) == 0 {
			args = append(args, "--config", "/nowhere")
		}
		if _, err := scratchCLI(env).prepare(args); err == nil || !strings.Contains(err.Error(), "/nowhere: no such file") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestConfig_WithAPasswordMustNotBeReadableByOthers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cuelight.yaml")
	for _, c := range []struct {
		text      string
		mode      os.FileMode
		isRefused bool
	}{
		{"database-url: postgres://u:secret@h/x", 0o644, true},
		{"notify-url: host=h password=secret", 0o604, true},
		{"database-url: postgres://u:secret@h/x", 0o640, false},
		{"database-url: postgres://u@h/x", 0o644, false},
	} {
		writeConfig(t, path, c.text)
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		_, err := loadConfig(path, nil)
		if (err != nil) != c.isRefused {
			t.Errorf("%s with mode %o: %v", c.text, c.mode, err)
		}
		if err != nil && (strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "run chmod o= "+path)) {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestConfig_IsNotReadByCommandsWithoutSettings(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"version"}, {"help", "list"}, {"completion", "bash"}, {"config", "example"}, {"__complete", "list", "--stage", ""},
	} {
		if code := run(t.Context(), args, strings.NewReader(""), new(strings.Builder), new(strings.Builder),
			[]string{"CUELIGHT_CONFIG=/nowhere"}); code != 0 {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}

func TestConfigExample_HasEverySettingWithAValidValue(t *testing.T) {
	t.Parallel()
	root := scratchCLI(nil).rootCommand()
	example := exampleConfig(root)
	for _, cmd := range commandTree(root) {
		for _, f := range settingFlags(cmd) {
			isSection := strings.Contains(example, "\n#"+sectionOf(cmd)+":\n") && strings.Contains(example, "\n#  "+f.Name+":")
			if !strings.Contains(example, "\n#"+f.Name+":") && !isSection {
				t.Errorf("--%s of %s is missing", f.Name, cmd.CommandPath())
			}
		}
	}
	// Without the first comment character, only explanations and settings without a default are comments.
	text := regexp.MustCompile(`(?m)^#(# | *[a-z-]+: *\S|[a-z]+:$)`).ReplaceAllString(example, "$1")
	text = regexp.MustCompile(`(?m)^#?[a-z-]+:$`).ReplaceAllStringFunc(text, func(line string) string {
		if slices.Contains([]string{"run:", "serve:", "work:"}, line) {
			return line
		}
		return ""
	})
	path := filepath.Join(t.TempDir(), "cuelight.yaml")
	writeConfig(t, path, text)
	if file, err := loadConfig(path, nil); err != nil || len(file.entries) < 40 {
		t.Errorf("the example is refused: %v\n%s", err, text)
	}
}

func TestConfig_OfThePackageIsValid(t *testing.T) {
	t.Parallel()
	const path = "../../docs/deploy/cuelight.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loadConfig(path, nil); err != nil {
		t.Error(err)
	}
	// Also with the settings that are commented out.
	all := filepath.Join(t.TempDir(), "cuelight.yaml")
	writeConfig(t, all, regexp.MustCompile(`(?m)^  # ([a-z]+: )`).ReplaceAllString(string(text), "  $1"))
	if file, err := loadConfig(all, nil); err != nil || len(file.entries) < 8 {
		t.Errorf("%v: %d settings", err, len(file.entries))
	}
}

func TestReload_AppliesTheLogLevelAndNamesOtherChanges(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cuelight.yaml")
	writeConfig(t, path, "crf: 20\nnice: 5\n")
	c := scratchCLI(nil)
	c.args = []string{"serve", "--config", path, "--threads", "2"}
	cmd, err := scratchCLI(nil).prepare(c.args)
	if err != nil {
		t.Fatal(err)
	}
	level := zap.NewAtomicLevel()
	core, logged := observer.New(level)
	r := &reloader{c: c, running: settingsOf(cmd), level: level, log: zap.New(core)}
	reload := func(text string) []observer.LoggedEntry {
		writeConfig(t, path, text)
		r.reload()
		return logged.TakeAll()
	}
	settings := func(all []observer.LoggedEntry) (names []string) {
		for _, e := range all {
			if name, ok := e.ContextMap()["setting"]; ok {
				names = append(names, name.(string)+" "+e.Message)
			}
		}
		return names
	}

	if got := reload("nice: 5\ncrf: 20\n"); len(got) != 1 || got[0].Message != "settings reloaded" {
		t.Errorf("without a change it logged %v", got)
	}
	want := []string{"crf setting changed: a restart is required", "slots setting changed: a restart is required"}
	for range 2 { // as long as it is so
		got := reload("nice: 5\ncrf: 21\nthreads: 3\nserve: {slots: {ingest: 2, publish: 3}}\n")
		if !slices.Equal(settings(got), want) || got[len(got)-1].ContextMap()["restart_required"] != int64(2) {
			t.Errorf("it logged %v", got)
		}
	}
	if got := reload("nice: 5\ncrf: 99\nlog-level: error"); len(got) != 1 || got[0].Level != zap.ErrorLevel ||
		!strings.Contains(got[0].ContextMap()["error"].(string), path+":2: crf 99") || level.Level() != zap.InfoLevel {
		t.Errorf("of a broken file it logged %v", got)
	}
	if got := settings(reload("nice: 5\ncrf: 20\nlog-level: warn")); level.Level() != zap.WarnLevel ||
		!slices.Equal(got, []string{"log-level setting changed"}) {
		t.Errorf("it logged %v, and the level is %s", got, level)
	}
}

// The list is alphabetical: database-url comes before log-level, and read-database-url after it.
func TestReload_NamesAllChangesWhicheverWayTheLogLevelGoes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cuelight.yaml")
	config := func(level, password string) string {
		return "log-level: " + level + "\ndatabase-url: postgres://u:" + password + "@h/x\nnotify-url: host=h password=" + password +
			"\nserve: {listen: '127.0.0.1:0', read-database-url: 'postgres://u:" + password + "@h/y'}\n"
	}
	for _, change := range [][2]string{{"error", "info"}, {"info", "error"}, {"warn", "warn"}} {
		writeConfig(t, path, config(change[0], "first"))
		c := scratchCLI(nil)
		c.args = []string{"serve", "--config", path}
		cmd, err := scratchCLI(nil).prepare(c.args)
		if err != nil {
			t.Fatal(err)
		}
		level := zap.NewAtomicLevelAt(parseLevel(change[0]))
		core, logged := observer.New(level)
		r := &reloader{c: c, running: settingsOf(cmd), level: level, log: zap.New(core)}
		writeConfig(t, path, config(change[1], "second"))
		r.reload()
		var names []string
		for _, e := range logged.All() {
			if name, ok := e.ContextMap()["setting"].(string); ok && name != logLevelFlag {
				names = append(names, name)
			}
			if text := fmt.Sprint(e.ContextMap()); strings.Contains(text, "first") || strings.Contains(text, "second") {
				t.Errorf("a password is logged: %s", text)
			}
		}
		if !slices.Equal(names, []string{"database-url", "notify-url", "read-database-url"}) || level.Level() != parseLevel(change[1]) {
			t.Errorf("from %s to %s: it logged %v, and the level is %s", change[0], change[1], names, level)
		}
	}
}

func TestServe_ReloadsItsSettingsOnSIGHUP(t *testing.T) {
	t.Parallel()
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("this process ignores SIGHUP, as below nohup, and so do the programs that it starts")
	}
	p := newWorkDir(t)
	writeConfig(t, p.path("cuelight.yaml"), "crf: 20\n")
	r := p.start("serve", "--config", "cuelight.yaml")
	r.waitForOutput(`"msg":"working"`, 1)
	writeConfig(t, p.path("cuelight.yaml"), "crf: 20\nlog-level: error\n")
	r.signal(syscall.SIGHUP)
	r.waitForOutput(`"setting":"log-level","value":"error"`, 1)
	r.signal(syscall.SIGTERM)
	r.end(0)
	if text := r.stderr(); strings.Contains(text, `"msg":"stopping"`) {
		t.Errorf("after the change it logged\n%s", text)
	}
}

func TestCompletion_OffersFilesOnlyForFiles(t *testing.T) {
	t.Parallel()
	for _, cmd := range allCommands() {
		if offersFiles := cmd.ValidArgsFunction == nil && cmd.HasParent(); offersFiles != strings.Contains(cmd.Use, "FILE") {
			t.Errorf("%s completes files: %t", cmd.CommandPath(), offersFiles)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		var out strings.Builder
		if code := run(t.Context(), []string{"completion", shell}, strings.NewReader(""), &out, new(strings.Builder), nil); code != 0 ||
			!strings.Contains(out.String(), "cuelight") {
			t.Errorf("completion %s: exit code %d", shell, code)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add("crf: 20\nserve:\n  slots: {transcode: 2}\n")
	f.Add("watch:\n- a\n- [b]\n")
	f.Add("a: &a [*a]\n")
	f.Add("? x\n--- 3")
	f.Add("crf: \"\\x1b[2J\"\n\xff")
	f.Add("\"\\e\": 1\nlabel: \"\\a\"")
	root := scratchCLI(nil).rootCommand()
	f.Fuzz(func(t *testing.T, text string) {
		file := &configFile{path: "cuelight.yaml"}
		file.parse([]byte(text), root)
		for _, e := range file.entries {
			file.checkEntry(root, e, 0o644)
		}
		for _, p := range file.problems {
			if strings.ContainsFunc(p.text, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%q: the problem is %q", text, p.text)
			}
		}
	})
}
