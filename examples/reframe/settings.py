"""A system of one node for ReFrame; on a cluster scheduler "slurm" and launcher "srun"."""
site_configuration = {
    "systems": [{
        "name": "node",
        "hostnames": [".*"],
        "partitions": [{
            "name": "cores",
            "scheduler": "local",
            "launcher": "local",
            "environs": ["installed"],
            "max_jobs": 1,  # nothing else may run beside a benchmark
        }],
    }],
    "environments": [{"name": "installed"}],
    "logging": [{
        "handlers": [{"type": "file", "level": "debug", "format": "%(message)s"}],
        "handlers_perflog": [{
            "type": "filelog", "prefix": "%(check_system)s/%(check_partition)s",
            "level": "info", "append": True,
            "format": "%(check_job_completion_time)s,%(check_info)s,%(check_perfvalues)s",
            "format_perfvars": "%(check_perf_value)s %(check_perf_unit)s,",
        }],
    }],
}
