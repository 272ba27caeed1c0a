"""What falsifier authors share. Each package here names the extra that brings what it needs beyond the harness."""
