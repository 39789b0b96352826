package daemon

import (
	"cmp"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Build says which program this is.
type Build struct {
	// Version is the module's, such as v0.3.0, or (devel).
	Version string
	// Revision is the commit it was built from, with +dirty if the tree had changes; unknown
	// when it was built outside a repository.
	Revision string
	// GoVersion is that of the compiler.
	GoVersion string
}

// ReadBuild returns what the compiler wrote into this program.
func ReadBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{"unknown", "unknown", "unknown"}
	}
	b := Build{Version: cmp.Or(info.Main.Version, "(devel)"), GoVersion: info.GoVersion}
	dirty := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	b.Revision = cmp.Or(b.Revision, "unknown") + dirty
	return b
}

// String is one line for --version.
func (b Build) String() string {
	return b.Version + " (revision " + b.Revision + ", " + b.GoVersion + ")"
}

// NewRegistry returns a registry with the Go and process collectors and notify_build_info.
func NewRegistry(b Build) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "notify_build_info",
		Help: "1; the labels say which program this is.",
		ConstLabels: prometheus.Labels{
			"version": b.Version, "revision": b.Revision, "goversion": b.GoVersion,
		},
	})
	info.Set(1)
	registry.MustRegister(info, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}
