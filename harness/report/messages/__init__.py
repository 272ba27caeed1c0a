"""The words of reports: verdicts, reasons, findings, bounds and numbers in plain English."""
